"""`localspec doctor`: what is installed, what it can use of this machine, and the line that mends what is amiss."""
