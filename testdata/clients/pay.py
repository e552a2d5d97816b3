"""Pays once, whatever happens: pay.py FILE FROM TO ASSET AMOUNT_MINOR

FILE keeps the request and its key before the first try, and then the receipt.
After a crash run the same command again. Environment: RONBOX_URL, RONBOX_TOKEN.
"""
import http.client, json, os, sys, time, urllib.error, urllib.request, uuid


def keep(path, payment):
    """Writes the payment to path: after a power cut the file has all of it, or what it had."""
    with open(path + ".new", "w") as f:
        json.dump(payment, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".new", path)
    os.fsync(os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY))


def send(order):
    """Returns the receipt, or None, and the seconds to wait before the next try."""
    request = urllib.request.Request(os.environ["RONBOX_URL"] + "/v1/transfer", json.dumps(order).encode(), {
        "Authorization": "Bearer " + os.environ["RONBOX_TOKEN"],
        "Content-Type": "application/json",
        "Idempotency-Key": order["reference"]})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer), 0
    except urllib.error.HTTPError as refused:
        problem = {"reason": refused.reason, "retryable": refused.code in (429, 502, 503, 504)}
        try:
            problem |= json.load(refused)
        except (OSError, TypeError, ValueError, http.client.HTTPException):
            pass  # it is not from the node: a proxy has answered
        print(refused.code, problem["reason"], file=sys.stderr)
        if not problem["retryable"]:
            sys.exit(1)
        return None, int(refused.headers.get("Retry-After", 1))
    except (OSError, ValueError, http.client.HTTPException) as lost:
        print("no answer:", lost, file=sys.stderr)  # it may be paid or not
        return None, 1


path, sender, payee, asset, amount = sys.argv[1:]
# The node knows a key for a day and a reference for ever. Here they are one word.
order = {"from": sender, "to": payee, "asset": asset, "amount_minor": amount, "reference": str(uuid.uuid4())}
if os.path.exists(path):
    payment = json.load(open(path))
    if payment["order"] != order | {"reference": payment["order"]["reference"]}:
        sys.exit(path + " is of another payment")
else:
    payment = {"order": order}
    keep(path, payment)
while "receipt" not in payment:
    receipt, seconds = send(payment["order"])
    if receipt:
        payment["receipt"] = receipt
        keep(path, payment)
    time.sleep(seconds)
print(payment["receipt"]["txid"])
