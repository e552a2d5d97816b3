"""Follows the payments, and keeps each once: events.py FILE [ACCOUNT]

FILE is an SQLite database. After a crash or a failover run the same command again.
Environment: RONBOX_URL, of any member, and RONBOX_TOKEN, with the scope wallet.read.
"""
import http.client, json, os, sqlite3, sys, time, urllib.error, urllib.parse, urllib.request

db = sqlite3.connect(sys.argv[1])
db.execute("create table if not exists place (only integer primary key, last integer)")
db.execute("create table if not exists payment (seq integer primary key, type text, receipt text)")
db.execute("insert or ignore into place values (1, 0)")
db.commit()


def frames(answer):
    """Yields the fields of each event of a stream."""
    fields = {}
    for raw in answer:
        line = raw.decode().rstrip("\r\n")
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif fields:
            yield fields
            fields = {}


def follow(url):
    """Keeps what the stream sends, until it ends."""
    (last,) = db.execute("select last from place").fetchone()
    request = urllib.request.Request(url, headers={
        "Authorization": "Bearer " + os.environ["RONBOX_TOKEN"], "Last-Event-ID": str(last)})
    with urllib.request.urlopen(request, timeout=45) as answer:  # a ping comes every 15 seconds
        for frame in frames(answer):
            if "id" not in frame:
                continue  # the node stops
            with db:  # one transaction has the payment and the place after it
                if "data" in frame:
                    event = json.loads(frame["data"])
                    receipt = event["data"]["receipt"]
                    row = frame["id"], event["type"], json.dumps(receipt)
                    db.execute("insert into payment values (?, ?, ?)", row)
                db.execute("update place set last = ?", (frame["id"],))
            if "data" in frame:
                print(frame["id"], event["type"], receipt["txid"], flush=True)


url = os.environ["RONBOX_URL"] + "/v1/events" + "".join("?account=" + urllib.parse.quote(a) for a in sys.argv[2:3])
while True:
    seconds = 1
    try:
        follow(url)
    except urllib.error.HTTPError as refused:
        print(refused.code, refused.read().decode(), file=sys.stderr)
        if refused.code < 500 and refused.code != 429:
            sys.exit(1)
        seconds = int(refused.headers.get("Retry-After", 1))
    except (OSError, http.client.HTTPException) as lost:
        print("the stream has ended:", lost, file=sys.stderr)
    time.sleep(seconds)
