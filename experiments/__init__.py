"""What papers report, run again at the scale of a laptop: `python -m experiments --list`."""
