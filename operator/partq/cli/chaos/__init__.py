"""`partq chaos`: kill and freeze every part under load, and judge what the consumers saw."""
