#!/usr/bin/env python3
"""Print the samples of one Prometheus series as they were scraped: SCRIPT URL SERIES."""

import json
import sys
import time
from urllib.parse import urlencode
from urllib.request import urlopen

url, series, last_s = sys.argv[1], sys.argv[2], time.time()
query = urlencode({"query": f"{series}[30s]"})
while True:
    with urlopen(f"{url}/api/v1/query?{query}", timeout=5) as answer:
        result = json.load(answer)["data"]["result"]
    if len(result) > 1:
        sys.exit(f"{series} matches {len(result)} series; add labels until it matches one")
    for unix_s, watts in (each for found in result for each in found["values"]):
        if unix_s > last_s:
            last_s = unix_s
            print(unix_s, watts, flush=True)
    time.sleep(0.2)
