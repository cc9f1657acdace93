set -eu
i=0
while [ $i -lt 400 ]; do
    echo "2026-03-01T10:00:00 INFO req=r$i ok"
    i=$((i + 1))
done > app.log
echo '2026-03-01T10:07:01 WARN req=r9 slow (1200 ms)
2026-03-01T10:07:02 ERROR req=r401 connect db-7.internal: no route to host
2026-03-01T10:07:02 ERROR req=r401 query failed
2026-03-01T10:07:03 ERROR req=r402 pool exhausted
2026-03-01T10:07:04 ERROR req=r403 pool exhausted
2026-03-01T10:07:09 ERROR req=r402 cache-2.internal: stale' >> app.log
