package object_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines/archive/object"
)

var update = flag.Bool("update", false, "write the golden object again")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func key(t testing.TB, n byte) object.Key {
	t.Helper()
	k, err := object.NewKey(bytes.Repeat([]byte{n}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func header(n int) object.Header {
	return object.Header{
		Kind: object.Log, NodeID: "NODE", Incarnation: "INC", Line: "LINE", Schema: 6,
		MadeAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Bytes: int64(n),
		LogHeader: &object.LogHeader{From: object.Point{Seq: 1, At: 2}, To: object.Point{Seq: 3, At: 4}, Entries: 2},
	}
}

func write(t testing.TB, h object.Header, plain []byte, to ...age.Recipient) []byte {
	t.Helper()
	var out bytes.Buffer
	sum, err := object.Write(&out, h, bytes.NewReader(plain), to, key(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(object.Tail(out.Bytes()), sum[:]) {
		t.Error("the tail does not begin with the sum")
	}
	return out.Bytes()
}

func identity(t testing.TB) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// An object gives back what it was made of, to its recipient alone.
func TestObject(t *testing.T) {
	plain := bytes.Repeat([]byte("entry "), 100_000)
	mine, other := identity(t), identity(t)
	raw := write(t, header(len(plain)), plain, mine.Recipient(), identity(t).Recipient())
	if len(raw) > len(plain)/10 {
		t.Errorf("%d bytes of %d", len(raw), len(plain))
	}
	o, err := object.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if o.Cipher != object.Age || o.Signer != key(t, 1).Signer() || o.To.Seq != 3 || o.BaseHeader != nil {
		t.Errorf("%+v", o.Header)
	}
	if got, err := o.Plain([]age.Identity{other, mine}); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for _, ids := range [][]age.Identity{nil, {other}} {
		if _, err := o.Plain(ids); !errors.Is(err, object.ErrIdentity) {
			t.Errorf("%d identities: %v", len(ids), err)
		}
	}
	open, err := object.Parse(write(t, header(len(plain)), plain))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := open.Plain(nil); err != nil || open.Cipher != object.None || !bytes.Equal(got, plain) {
		t.Errorf("without a recipient: %d bytes, %v", len(got), err)
	}
}

// Every object with one changed, missing or further byte is refused.
func TestDamagedObject(t *testing.T) {
	raw := write(t, header(5), []byte("plain"))
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.IntRange(0, len(raw)-1).Draw(t, "at")
		bad := bytes.Clone(raw)
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			bad[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		case 1:
			bad = bad[:at]
		case 2:
			bad = append(bad, 0)
		}
		if _, err := object.Parse(bad); !errors.Is(err, object.ErrDamaged) && !errors.Is(err, object.ErrFormat) {
			t.Errorf("%v", err)
		}
	})
}

// seal gives an object the sum of its bytes.
func seal(raw []byte) {
	end := len(raw) - 96
	sum := b3.Sum(raw[:end])
	copy(raw[end:], sum[:])
}

// An object of another format is not called damaged, and one that another key signed is.
func TestOtherObjects(t *testing.T) {
	raw := write(t, header(5), []byte("plain"))
	later := bytes.Replace(raw, []byte("RBARCH01"), []byte("RBARCH02"), 1)
	if _, err := object.Parse(later); !errors.Is(err, object.ErrDamaged) {
		t.Errorf("a changed version: %v", err)
	}
	seal(later)
	if _, err := object.Parse(later); !errors.Is(err, object.ErrFormat) {
		t.Errorf("format 2: %v", err)
	}
	forged := bytes.Replace(raw, []byte(key(t, 1).Signer()), []byte(key(t, 2).Signer()), 1)
	seal(forged)
	if _, err := object.Parse(forged); !errors.Is(err, object.ErrDamaged) {
		t.Errorf("signed by another: %v", err)
	}
	for name, spoil := range map[string]func(h *object.Header){
		"no kind":     func(h *object.Header) { h.Kind = "" },
		"no bytes":    func(h *object.Header) { h.Bytes = 0 },
		"a long line": func(h *object.Header) { h.Bytes = object.MaxPlain + 1 },
		"backwards":   func(h *object.Header) { h.To.Seq = 1 },
		"of both":     func(h *object.Header) { h.BaseHeader = &object.BaseHeader{Parts: 1} },
	} {
		h := header(5)
		spoil(&h)
		if _, err := object.Write(&bytes.Buffer{}, h, strings.NewReader("plain"), nil, key(t, 1)); err == nil {
			t.Errorf("%s: it was written", name)
		}
	}
	if _, err := object.Write(&bytes.Buffer{}, header(9), strings.NewReader("plain"), nil, key(t, 1)); err == nil {
		t.Error("fewer bytes than announced: it was written")
	}
}

// A part of the file of a period has the length that its place in the file says.
func TestFileHeader(t *testing.T) {
	good := object.FileHeader{
		Period: 2, Statement: b3.Sum(nil), Before: b3.Sum([]byte("1")), B3: b3.Sum([]byte("f")),
		Bytes: 2*object.PartSize + 5, Part: 2,
	}
	write := func(f object.FileHeader, bytes int64, change func(h *object.Header)) error {
		h := object.Header{Kind: object.Period, NodeID: "NODE", Incarnation: "INC", Schema: 6, Bytes: bytes, File: &f}
		change(&h)
		_, err := object.Write(io.Discard, h, strings.NewReader("plain"), nil, key(t, 1))
		return err
	}
	same := func(*object.Header) {}
	if err := write(good, 5, same); err != nil || good.Parts() != 3 {
		t.Errorf("%d parts, %v", good.Parts(), err)
	}
	for name, spoil := range map[string]func(f *object.FileHeader){
		"no period":          func(f *object.FileHeader) { f.Period = 0 },
		"the first, after 1": func(f *object.FileHeader) { f.Period = 1 },
		"after nothing":      func(f *object.FileHeader) { f.Before = b3.Digest{} },
		"beyond the end":     func(f *object.FileHeader) { f.Part = 3 },
		"before the begin":   func(f *object.FileHeader) { f.Part = -1 },
		"of another length":  func(f *object.FileHeader) { f.Bytes++ },
		"a huge file":        func(f *object.FileHeader) { f.Bytes, f.Part = 1<<62+5, 1<<30 },
	} {
		f := good
		if spoil(&f); write(f, 5, same) == nil {
			t.Errorf("%s: it was written", name)
		}
	}
	for name, spoil := range map[string]func(h *object.Header){
		"without a file": func(h *object.Header) { h.File = nil },
		"of a line":      func(h *object.Header) { h.Line = "LINE" },
		"of a base":      func(h *object.Header) { h.Kind, h.Line = object.Base, "LINE" },
	} {
		if write(good, 5, spoil) == nil {
			t.Errorf("%s: it was written", name)
		}
	}
}

// Format 1 stays as it is: an object of an earlier build is read as it was.
func TestGolden(t *testing.T) {
	const path = "testdata/format1.hex"
	if *update {
		raw := write(t, header(5), []byte("plain"))
		if err := os.WriteFile(path, append(hex.AppendEncode(nil, raw), '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	o, err := object.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := o.Plain(nil)
	if err != nil || string(plain) != "plain" || o.From.At != 2 || o.Entries != 2 || o.Schema != 6 {
		t.Errorf("%+v, %q, %v", o.Header, plain, err)
	}
}

// A plain log gives back its entries.
func TestEntries(t *testing.T) {
	log := object.AppendEntry(object.AppendEntry(nil, []byte("one")), nil)
	es, err := object.Entries(log)
	if err != nil || len(es) != 2 || string(es[0]) != "one" || len(es[1]) != 0 {
		t.Errorf("%q, %v", es, err)
	}
	for cut := 1; cut < len(log); cut++ {
		if _, err := object.Entries(log[:cut]); (err == nil) != (cut == 7) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
}

// No input makes Parse or Plain panic, or return other bytes than were announced.
func FuzzObject(f *testing.F) {
	raw := write(f, header(5), []byte("plain"))
	f.Add(raw)
	f.Add(raw[:20])
	f.Add([]byte("RBARCH02"))
	k := key(f, 1)
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, _, _ = object.ParseHeader(raw)
		var out bytes.Buffer
		if len(raw) > 0 && len(raw) < 1<<16 { // as a payload, too
			h := header(len(raw))
			if _, err := object.Write(&out, h, bytes.NewReader(raw), nil, k); err != nil {
				t.Fatal(err)
			}
			o, err := object.Parse(out.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if got, err := o.Plain(nil); err != nil || !bytes.Equal(got, raw) {
				t.Fatalf("%d bytes of %d, %v", len(got), len(raw), err)
			}
		}
		o, err := object.Parse(raw)
		if err != nil {
			return
		}
		if plain, err := o.Plain(nil); err == nil && int64(len(plain)) != o.Bytes {
			t.Errorf("%d bytes, announced %d", len(plain), o.Bytes)
		}
	})
}
