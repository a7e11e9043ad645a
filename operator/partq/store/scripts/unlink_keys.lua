-- Remove keys of one hash tag; their memory is freed in the background.
--
-- when full: passes
--
-- KEYS     hashes first (see lua.py), then the rest; some hundreds at most, as they are unpacked
-- returns  how many there were
return redis.call("UNLINK", unpack(KEYS))
