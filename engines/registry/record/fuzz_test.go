package record

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
)

// Canonical bytes are stable, and equal to those of another implementation.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"b":[1,-2,{"c":true}],"a":"\u0041\ud83d\ude00"}`, `{"a":1,"a":2}`, `[1.0]`, `-0`, `null`, `"\ud800"`, "\"\xff\"", `[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]`,
		`9007199254740993`, `{"a":{"\u000b":"\\\""}}`, `{"` + "\ufb33" + `":1,"😀":2}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := Canonical(raw)
		if err != nil {
			return
		}
		if again, err := Canonical(got); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q became %q: %v", got, again, err)
		}
		theirs := jsontext.Value(bytes.Clone(raw))
		if err := theirs.Canonicalize(); err != nil || !bytes.Equal(theirs, got) {
			t.Fatalf("%q gives %q, another implementation %q: %v", raw, got, theirs, err)
		}
	})
}

// An accepted value has one form: its own bytes parse to it again.
func FuzzParsePayload(f *testing.F) {
	genesis, base := began(f, testSet(f, 1, 2), testItem(f, "a", 1))
	f.Add(genesis.Bytes())
	f.Add(Draft{Version: 2, Put: []Item{testItem(f, "b", 1)}, Remove: []string{"a"}}.Bytes())
	f.Add([]byte(`{"schema_version":"1.0.0","version":2,"items":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if p, err := ParsePayload(raw); err == nil {
			if again, err := ParsePayload(p.Bytes()); err != nil || again.B3() != p.B3() ||
				!bytes.Equal(p.encode(), p.Bytes()) {
				t.Fatalf("%q: %v", p.Bytes(), err)
			}
			_, _ = p.Check(Base{})
		}
		p, items, err := Complete(raw, base, noon)
		if err != nil {
			return
		}
		again, err := ParsePayload(p.Bytes())
		if err != nil {
			t.Fatalf("%q: %v", p.Bytes(), err)
		}
		if same, err := again.Check(base); err != nil || same.Root() != items.Root() {
			t.Fatalf("%q: %v", p.Bytes(), err)
		}
	})
}

func FuzzParseApproval(f *testing.F) {
	a := testKey(f, 1).Sign(b3.Sum([]byte("payload")), noon)
	f.Add(a.Bytes())
	a.ReceivedAt = FormatTime(noon)
	f.Add(a.Bytes())
	signer := testKey(f, 1).Signer(1)
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := ParseApproval(raw)
		if err != nil {
			return
		}
		if again, err := ParseApproval(got.Bytes()); err != nil || again != got {
			t.Fatalf("%q: %v", got.Bytes(), err)
		}
		if err := VerifyApproval(got, signer, b3.Sum([]byte("payload"))); err == nil && got.Sig != a.Sig {
			t.Fatalf("%q verifies", got.Bytes())
		}
	})
}

func FuzzParseEntry(f *testing.F) {
	f.Add(testEntry(f).Bytes())
	audit := Audit{Seq: 1, At: FormatTime(noon), Event: "x", Decision: DecisionReject}
	f.Add(audit.Bytes())
	f.Add(testSet(f, 1, 2).Bytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		if e, err := ParseEntry(raw); err == nil {
			if again, err := ParseEntry(e.Bytes()); err != nil || again.Hash() != e.Hash() ||
				!bytes.Equal(e.encode(), e.Bytes()) {
				t.Fatalf("%q: %v", e.Bytes(), err)
			}
		}
		if a, err := ParseAudit(raw); err == nil && !bytes.Equal(a.encode(), a.Bytes()) {
			t.Fatalf("%q: %q", a.Bytes(), a.encode())
		}
		if s, err := ParseSignerSet(raw); err == nil {
			if canon, err := Canonical(raw); err != nil || !bytes.Equal(s.Bytes(), canon) {
				t.Fatalf("%q: %q", canon, s.Bytes())
			}
		}
	})
}

// A key counts once, and only with its own signature, however often and in whatever order approvals
// are sent.
func FuzzRepeatedApprovals(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1}, uint8(2))
	f.Add([]byte{0x80, 0, 0x40, 1, 2, 2}, uint8(3))
	const signers = 4
	set, sum := testSet(f, 1, signers), b3.Sum([]byte("payload"))
	var good [signers]Approval
	for i := range good {
		good[i] = testKey(f, byte(i)).Sign(sum, noon)
	}
	f.Fuzz(func(t *testing.T, sent []byte, need uint8) {
		var approvals []Approval
		distinct := map[string]bool{}
		for _, b := range sent {
			a := good[b%signers]
			switch {
			case b&0x80 != 0: // another's signature
				a.Sig = good[(b+1)%signers].Sig
			case b&0x40 != 0: // in nobody's name
				a.SignerID = "org:test#nobody"
			default:
				distinct[a.SignerID] = true
			}
			approvals = append(approvals, a)
		}
		least := max(int(need), 1)
		counted, err := Quorum(set, 2, approvals, sum, least)
		if (err == nil) != (len(distinct) >= least) || err == nil && len(counted) != len(distinct) {
			t.Fatalf("%x: %d of %d count, want %d: %v", sent, len(counted), least, len(distinct), err)
		}
	})
}
