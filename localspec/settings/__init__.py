"""What people can set: the fields of a request, the file config.toml, the options of methods."""
