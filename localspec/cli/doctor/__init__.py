"""`localspec doctor`: checks the installation and the machine, and names the command that mends a problem."""
