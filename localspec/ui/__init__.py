"""What every face reads, says and asks alike: the command line, the full-screen chat."""
