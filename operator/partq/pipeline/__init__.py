"""Jobs on Spark: archive a queue, compact an archive, replay it, check it."""
