-- What wrk sends: the payment under a fresh key each time, or under one of a few keys again and again.
local phase, seed = os.getenv("BENCH_PHASE"), os.getenv("BENCH_SEED")
local body = '{"amount": 1999, "currency": "usd", "customer": "cus_1234567890", "note": "hello there ok"}'
local KEYS = 200
local threads = 0

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init()
  count = 0
end

function request()
  count = count + 1
  local n = phase == "replay" and count % KEYS or count
  local who = phase == "replay" and 99 or number
  local headers = {
    ["Content-Type"] = "application/json",
    ["Authorization"] = "Bearer abcdef",
    ["Idempotency-Key"] = string.format("%s-%02d-%010d-0af7651916cd", seed, who, n),
  }
  return wrk.format("POST", "/pay", headers, body)
end

function done(summary, latency)
  local wrong = summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
  io.write(string.format('{"requests": %d, "us": %d, "p50": %d, "p99": %d, "wrong": %d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), wrong))
end
