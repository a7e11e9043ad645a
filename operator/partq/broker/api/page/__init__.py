"""The page that a broker serves to browsers: its files, and how they are served."""
