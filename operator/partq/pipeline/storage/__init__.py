"""The files of an archive: on this machine, or where Hadoop's file systems reach."""
