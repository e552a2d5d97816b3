package record

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines"
)

func drawReceipt(t *rapid.T) Receipt {
	account := rapid.StringMatching(`[A-Za-z0-9:/_-]{1,256}`)
	at, seq := drawTime(t, "at"), drawUint(t, "seq")
	r := Receipt{
		TxID:    NewTxID(at, seq, rapid.Uint16().Draw(t, "rnd")),
		Op:      Op(rapid.IntRange(1, 12).Draw(t, "op")),
		Nonce:   drawUint(t, "nonce"),
		At:      at,
		Seq:     seq,
		Batch:   drawUint(t, "batch"),
		Root:    drawDigest(t, "root"),
		Version: ReceiptVersion,
		Idem: rapid.StringMatching(`([A-Za-z0-9._:-]{1,64})?`).
			Draw(t, "idem"),
		Asset: rapid.StringMatching(`([a-z0-9]{1,16})?`).Draw(t, "asset"),
	}
	if set, unset := rapid.IntRange(0, 15).
		Draw(t, "set"),
		rapid.IntRange(0, 15).
			Draw(t, "clear"); r.Op == OpFlags &&
		set|unset != 0 {
		r.Set, r.Clear, r.Version = Flags(set), Flags(unset), ReceiptNamed
	}
	if r.Op.MovesMoney() {
		r.Amount = drawAmount().Draw(t, "amount")
	}
	if rapid.Bool().Draw(t, "from") {
		r.From = account.Draw(t, "from")
	}
	if rapid.Bool().Draw(t, "to") {
		r.To = account.Draw(t, "to")
	}
	if rapid.Bool().Draw(t, "hold") {
		r.Hold = TxID(drawBytes(t, 16, "hold"))
		r.Hold[0] |= 0x10
	}
	return r
}

// A receipt survives JSON, compact or indented, with its time truncated to milliseconds. Its hash
// is over the canonical form of the covered members.
func TestReceiptRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawReceipt(t)
		text := r.AppendJSON(nil)
		want := r
		want.At -= want.At % int64(time.Millisecond)
		spaced := jsontext.Value(append([]byte(nil), text...))
		if err := spaced.Indent(); err != nil {
			t.Fatal(err)
		}
		for _, form := range [][]byte{text, spaced} {
			if back, err := ParseReceipt(form); err != nil || back != want {
				t.Fatalf("%s\nread as %+v, %v", form, back, err)
			}
		}
		canon := r.appendCanonical(nil, appendStamp(nil, r.At))
		again := jsontext.Value(append([]byte(nil), canon...))
		if r.Nonce < 1<<53 {
			if err := again.Canonicalize(); err != nil || string(again) != string(canon) {
				t.Fatalf("%s is not canonical: %s, %v", canon, again, err)
			}
		}
		if r.Hash() != b3.Sum(canon) || len(canon) > canonicalMost {
			t.Fatalf("the hash is not that of %s", canon)
		}
	})
}

// A receipt with any altered byte in its covered members is refused. So is one with an altered byte
// in any other member that has one form only.
func TestReceiptAltered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawReceipt(t)
		text := r.AppendJSON(nil)
		whole, err := ParseReceipt(text)
		if err != nil {
			t.Fatal(err)
		}
		bit := rapid.IntRange(0, 8*len(text)-1).Draw(t, "bit")
		text[bit/8] ^= 1 << (bit % 8)
		got, err := ParseReceipt(text)
		if err == nil && (got.Hash() != whole.Hash() || got == whole) {
			t.Fatalf("%s\nread as %+v", text, got)
		}
	})
}

func TestReceiptIsStrict(t *testing.T) {
	r := Receipt{
		TxID:    NewTxID(goldenAt, 7, 1),
		Op:      OpTransfer,
		From:    "alice",
		To:      "bob",
		Asset:   "ron",
		Amount:  engines.AmountOf(0, 5),
		Nonce:   1,
		At:      goldenAt,
		Seq:     7,
		Batch:   2,
		Version: ReceiptVersion,
	}
	good := string(r.AppendJSON(nil))
	if _, err := ParseReceipt([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"empty":     "",
		"cut":       good[:len(good)-1],
		"trailing":  good + "{}",
		"unknown":   strings.Replace(good, `{"txid"`, `{"fee":1,"txid"`, 1),
		"twice":     strings.Replace(good, `"op"`, `"op":"transfer","op"`, 1),
		"order":     strings.Replace(good, `"from":"alice","to":"bob"`, `"to":"bob","from":"alice"`, 1),
		"null":      strings.Replace(good, `"nonce":1`, `"nonce":1,"idem":null`, 1),
		"escape":    strings.Replace(good, `alice`, `\u0061lice`, 1),
		"amount":    strings.Replace(good, `"amount_minor":"5"`, `"amount_minor":5`, 1),
		"no amount": strings.Replace(good, `"amount_minor":"5",`, ``, 1),
		"seq":       strings.Replace(good, `"seq":7`, `"seq":8`, 1),
		"op":        strings.Replace(good, `"transfer"`, `"gift"`, 1),
		"account":   strings.Replace(good, `alice`, `al ice`, 1),
		"ts":        strings.Replace(good, `.678Z`, `.6789Z`, 1),
		"ts comma":  strings.Replace(good, `.678Z`, `,678Z`, 1),
	} {
		var want *FormatError
		if got, err := ParseReceipt([]byte(bad)); !errors.As(err, &want) {
			t.Errorf("%s: read as %+v, %v", name, got, err)
		}
	}
}

// A receipt of a flags op names its flags in the canonical form or, in the older version, not at
// all. Receipts of other ops have no flags.
func TestReceiptOfFlags(t *testing.T) {
	r := Receipt{
		TxID:    NewTxID(goldenAt, 7, 1),
		Op:      OpFlags,
		From:    "alice",
		At:      goldenAt,
		Seq:     7,
		Batch:   2,
		Version: ReceiptVersion,
	}
	old := string(r.AppendJSON(nil))
	r.Set, r.Clear, r.Version = Frozen|NoCredit, Closed, ReceiptNamed
	good := string(r.AppendJSON(nil))
	for text, want := range map[string]uint8{old: ReceiptVersion, good: ReceiptNamed} {
		if back, err := ParseReceipt([]byte(text)); err != nil || back.Version != want ||
			string(back.AppendJSON(nil)) != text {
			t.Errorf("%s\nread as %+v, %v", text, back, err)
		}
	}
	for name, bad := range map[string]string{
		"left out":  strings.Replace(good, `,"clear":["closed"]`, ``, 1),
		"added":     strings.Replace(old, `"from":"alice"`, `"from":"alice","set":["frozen"]`, 1),
		"none":      strings.Replace(old, `"from":"alice"`, `"from":"alice","set":[]`, 1),
		"null":      strings.Replace(old, `"from":"alice"`, `"from":"alice","set":null`, 1),
		"another":   strings.Replace(good, `"frozen"`, `"no_debit"`, 1),
		"unknown":   strings.Replace(good, `"frozen"`, `"chilled"`, 1),
		"order":     strings.Replace(good, `"frozen","no_credit"`, `"no_credit","frozen"`, 1),
		"twice":     strings.Replace(good, `"frozen"`, `"frozen","frozen"`, 1),
		"other op":  strings.Replace(good, `"flags"`, `"open"`, 1),
		"exchanged": strings.Replace(good, `"set":["frozen","no_credit"],"clear":["closed"]`, `"set":["closed"],"clear":["frozen","no_credit"]`, 1),
	} {
		var want *FormatError
		if got, err := ParseReceipt([]byte(bad)); !errors.As(err, &want) {
			t.Errorf("%s: read as %+v, %v", name, got, err)
		}
	}
}

// A receipt without a known version panics instead of choosing a renderer.
func TestReceiptVersion(t *testing.T) {
	if !panics(func() { (&Receipt{}).AppendJSON(nil) }) || !panics(func() { (&Receipt{Version: 3}).AppendJSON(nil) }) {
		t.Error("a receipt was rendered by a renderer that does not exist")
	}
}

// The time has the same form as in the standard library.
func TestStamp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := drawTime(t, "at")
		got := string(appendStamp(nil, at))
		if want := time.Unix(0, at).UTC().Truncate(time.Millisecond).Format(stampLayout); got != want {
			t.Fatalf("%d is %s, want %s", at, got, want)
		}
		if back, err := parseStamp(got); err != nil || back != at-at%int64(time.Millisecond) {
			t.Fatalf("%s is %d, %v, want %d", got, back, err, at)
		}
	})
	for _, bad := range []string{"", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.678+00:00", "2026-02-30T03:04:05.678Z", "1969-12-31T23:59:59.999Z", "2300-01-01T00:00:00.000Z",
		"2026-01-02T3:04:05.678Z", "2026-01-02 03:04:05.678Z"} {
		if ns, err := parseStamp(bad); err == nil {
			t.Errorf("%q is %d", bad, ns)
		}
	}
}
