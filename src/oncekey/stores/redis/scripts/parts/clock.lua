-- clock: the words that the scripts share, and the server's time. Offsets are those of layout.py, counted from 1.
local call, pcall = redis.call, redis.pcall
local byte, sub = string.byte, string.sub
local pack, unpack = struct.pack, struct.unpack
local DONE = 1

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
