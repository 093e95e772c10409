"""HTTP clients whose calls are made as `operation.external` makes them, without a word in the handler.

httpx.Client(transport=on_httpx.KeyedTransport())
on_requests.install(session)
aiohttp.ClientSession(middlewares=[on_aiohttp.keyed()])
"""
