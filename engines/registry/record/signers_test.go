package record

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
)

// weakKeys are two keys that package sig refuses: one of small order, and one in a non-canonical
// encoding.
var weakKeys = []string{
	"0100000000000000000000000000000000000000000000000000000000000000",
	"f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// testSet is a sound first set of n signers.
func testSet(t testing.TB, threshold, n int) *SignerSet {
	s := &SignerSet{Epoch: 1, Threshold: threshold, ThresholdGov: threshold}
	for i := range n {
		s.Signers = append(s.Signers, testKey(t, byte(i)).Signer(1))
	}
	return s
}

func logKey(t testing.TB, key ed25519.PublicKey) string {
	t.Helper()
	vkey, err := note.NewEd25519VerifierKey("ronbox.test/log", key)
	if err != nil {
		t.Fatal(err)
	}
	return vkey
}

// Every rule of a set has one set that breaks it alone.
func TestSignerSetRules(t *testing.T) {
	fresh := testKey(t, 60)
	good := logKey(t, testKey(t, 50).private.Public().(ed25519.PublicKey))
	type rule struct {
		doc, field string
		edit       func(s *SignerSet)
	}
	rules := []rule{
		{"a sound set", "", func(*SignerSet) {}},
		{"a log key", "", func(s *SignerSet) { s.LogKeys = []string{good} }},
		{"threshold 0", "threshold", func(s *SignerSet) { s.Threshold = 0 }},
		{"threshold_gov below threshold", "threshold_gov", func(s *SignerSet) { s.ThresholdGov = 1 }},
		{"threshold_gov above the active", "threshold_gov", func(s *SignerSet) { s.ThresholdGov = 4 }},
		{"no signers", "threshold_gov", func(s *SignerSet) { s.Signers = nil }},
		{"epoch 0", "epoch", func(s *SignerSet) { s.Epoch = 0 }},
		{"epoch 2 as the first", "epoch", func(s *SignerSet) { s.Epoch = 2 }},
		{"65 active", "signers", func(s *SignerSet) { *s = *testSet(t, 2, 65) }},
		{"257 entries", "signers", func(s *SignerSet) { s.Signers = make([]Signer, 257) }},
		{"an id twice", "signers.3.signer_id", func(s *SignerSet) {
			e := fresh.Signer(1)
			e.ID = s.Signers[0].ID
			s.Signers = append(s.Signers, e)
		}},
		{"a key under two ids", "signers.3.public_key", func(s *SignerSet) {
			e := s.Signers[0]
			e.ID = fresh.SignerID
			s.Signers = append(s.Signers, e)
		}},
		{
			"a retired signer in the first set",
			"signers.2.status",
			func(s *SignerSet) { s.Signers[2].Status = StatusRetired },
		},
		{
			"since version 2 in the first set",
			"signers.2.since_version",
			func(s *SignerSet) { s.Signers[2].SinceVersion = 2 },
		},
		{"since version 0", "signers.2.since_version", func(s *SignerSet) { s.Signers[2].SinceVersion = 0 }},
		{"no such status", "signers.2.status", func(s *SignerSet) { s.Signers[2].Status = "Active" }},
		{"no such algorithm", "signers.2.algo", func(s *SignerSet) { s.Signers[2].Algo = "ed25519ph" }},
		{
			"grace of an active signer",
			"signers.2.grace_until_version",
			func(s *SignerSet) { s.Signers[2].GraceUntilVersion = 9 },
		},
		{"a long reason", "signers.2.reason", func(s *SignerSet) { s.Signers[2].Reason = strings.Repeat("x", 1025) }},
		{"an id without realm", "signers.2.signer_id", func(s *SignerSet) { s.Signers[2].ID = "org:#k" }},
		{"an id without org", "signers.2.signer_id", func(s *SignerSet) { s.Signers[2].ID = "acme#k" }},
		{
			"a long id",
			"signers.2.signer_id",
			func(s *SignerSet) { s.Signers[2].ID = "org:a#" + strings.Repeat("k", 123) },
		},
		{
			"a key with a line break",
			"signers.2.public_key",
			func(s *SignerSet) { s.Signers[2].PublicKey = "\n" + s.Signers[2].PublicKey[1:] },
		},
		{"a key with spare bits", "signers.2.public_key", func(s *SignerSet) {
			k := []byte(s.Signers[2].PublicKey)
			k[42]++ // the last character but the pad: its low bits encode nothing
			s.Signers[2].PublicKey = string(k)
		}},
		{"a short key", "signers.2.public_key", func(s *SignerSet) { s.Signers[2].PublicKey = "AAAA" }},
		{
			"no point",
			"signers.2.public_key",
			func(s *SignerSet) { s.Signers[2].PublicKey = encode64(append([]byte{2}, make([]byte, 31)...)) },
		},
		{"a log key that is none", "log_keys.0", func(s *SignerSet) { s.LogKeys = []string{"x+y+z"} }},
		{"a log key twice", "log_keys.1", func(s *SignerSet) { s.LogKeys = []string{good, good} }},
		{
			"a log key that is a signer's",
			"log_keys.0",
			func(s *SignerSet) { s.LogKeys = []string{logKey(t, s.Signers[1].Key())} },
		},
		{
			"a log key of small order",
			"log_keys.0",
			func(s *SignerSet) { s.LogKeys = []string{logKey(t, unhex(t, weakKeys[0]))} },
		},
		{"17 log keys", "log_keys", func(s *SignerSet) { s.LogKeys = make([]string, 17) }},
		{"a policy that is none", "witness_policy", func(s *SignerSet) { s.WitnessPolicy = "witness w1\n" }},
		{"a long policy", "witness_policy", func(s *SignerSet) { s.WitnessPolicy = strings.Repeat("x", 16<<10+1) }},
	}
	for i, point := range weakKeys {
		rules = append(rules, rule{
			fmt.Sprintf("weak key %d", i),
			"signers.2.public_key",
			func(s *SignerSet) { s.Signers[2].PublicKey = encode64(unhex(t, point)) },
		})
	}
	for _, tt := range rules {
		s := testSet(t, 2, 3)
		tt.edit(s)
		err := s.Validate(nil)
		if tt.field == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.doc, err)
			}
			continue
		}
		wantField(t, tt.doc, err, tt.field)
	}
}

// Every rule of history has one change that breaks it alone.
func TestSignerSetHistory(t *testing.T) {
	before := testSet(t, 1, 4)
	before.Signers[2].Status, before.Signers[2].GraceUntilVersion = StatusRetired, 8
	before.Signers[3].Status = StatusRevoked
	fresh := testKey(t, 60)
	for _, tt := range []struct {
		doc, field string
		edit       func(s *SignerSet)
	}{
		{"nothing changed", "", func(*SignerSet) {}},
		{"a new signer", "", func(s *SignerSet) { s.Signers = append(s.Signers, fresh.Signer(7)) }},
		{"another order", "", func(s *SignerSet) { slices.Reverse(s.Signers) }},
		{"one retires", "", func(s *SignerSet) { s.Signers[1].Status, s.Signers[1].GraceUntilVersion = StatusRetired, 9 }},
		{"a retired one is revoked", "", func(s *SignerSet) { s.Signers[2].Status, s.Signers[2].GraceUntilVersion = StatusRevoked, 0 }},
		{"grace is cut", "", func(s *SignerSet) { s.Signers[2].GraceUntilVersion = 7 }},
		{"the same epoch", "epoch", func(s *SignerSet) { s.Epoch = 1 }},
		{"an epoch left out", "epoch", func(s *SignerSet) { s.Epoch = 3 }},
		{"an entry disappears", "signers", func(s *SignerSet) { s.Signers = s.Signers[:3] }},
		{"another key under an id", "signers", func(s *SignerSet) { s.Signers[0].PublicKey = fresh.Public() }},
		{"another since_version", "signers", func(s *SignerSet) { s.Signers[0].SinceVersion = 2 }},
		{"a retired one is active again", "signers", func(s *SignerSet) { s.Signers[2].Status, s.Signers[2].GraceUntilVersion = StatusActive, 0 }},
		{"a revoked one is active again", "signers", func(s *SignerSet) { s.Signers[3].Status = StatusActive }},
		{"a revoked one is retired", "signers", func(s *SignerSet) { s.Signers[3].Status = StatusRetired }},
		{"more grace", "signers", func(s *SignerSet) { s.Signers[2].GraceUntilVersion = 9 }},
	} {
		s := *before
		s.Signers, s.Epoch = slices.Clone(before.Signers), 2
		tt.edit(&s)
		err := s.Validate(before)
		if tt.field == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.doc, err)
			}
			continue
		}
		wantField(t, tt.doc, err, tt.field)
	}
}

func TestSignerSetBytes(t *testing.T) {
	s := testSet(t, 2, 3)
	s.LogKeys, s.WitnessPolicy = []string{
		logKey(t, testKey(t, 50).private.Public().(ed25519.PublicKey)),
	}, "quorum none\n"
	s.Signers[1].Status, s.Signers[1].GraceUntilVersion, s.Signers[1].Reason = StatusRetired, 12, "left the team"
	got, err := ParseSignerSet(s.Bytes())
	if err != nil || !bytes.Equal(got.Bytes(), s.Bytes()) || got.B3() != b3.Sum(s.Bytes()) {
		t.Fatalf("%s came back as %v, %v", s.Bytes(), got, err)
	}
	if canon, err := Canonical(s.Bytes()); err != nil || !bytes.Equal(canon, s.Bytes()) {
		t.Errorf("%s is not canonical: %v", s.Bytes(), err)
	}
	for _, tt := range []struct{ old, to, field string }{
		{`"type":"ron.registry/signers/v1"`, `"type":"ron.registry/set/v1"`, "type"},
		{`"epoch":1`, `"epoch":"1"`, "epoch"},
		{`"epoch":1`, `"epoch":-1`, "epoch"},
		{`"reason":"left the team"`, `"reason":""`, "signers.1.reason"},
		{`"grace_until_version":12`, `"grace_until_version":0`, "signers.1.grace_until_version"},
		{`"status":"active"`, `"status":true`, "signers.0.status"},
		{`"threshold":2`, `"threshold":2,"x":{}`, "x"},
		{`"signers":[{`, `"signers":[[],{`, "signers.0"},
		{`"log_keys":["`, `"log_keys":[1,"`, "log_keys.0"},
	} {
		_, err := ParseSignerSet([]byte(strings.Replace(string(s.Bytes()), tt.old, tt.to, 1)))
		wantField(t, tt.old+" -> "+tt.to, err, tt.field)
	}
}

// Among up to 32 signers of any status, a quorum holds iff enough distinct active keys signed this
// payload. Other approvals change nothing.
func TestQuorum(t *testing.T) {
	keys := make([]*Key, 32)
	for i := range keys {
		keys[i] = testKey(t, byte(i))
	}
	payload, another := b3.Sum([]byte("payload")), b3.Sum([]byte("another"))
	right, wrong := make([]Approval, len(keys)), make([]Approval, len(keys))
	for i, k := range keys {
		right[i], wrong[i] = k.Sign(payload, noon), k.Sign(another, noon)
	}
	const version = 10
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, len(keys)).Draw(t, "n")
		need := rapid.IntRange(1, n).Draw(t, "m")
		set := &SignerSet{}
		for _, k := range keys[:n] {
			s := k.Signer(1)
			switch rapid.IntRange(0, 5).Draw(t, "status") {
			case 0:
				s.Status = StatusRevoked
			case 1:
				s.Status, s.GraceUntilVersion = StatusRetired, rapid.Uint64Range(version-1, version).Draw(t, "grace")
			}
			set.Signers = append(set.Signers, s)
		}
		var sent []Approval
		good, lost := map[string]bool{}, map[string]bool{}
		for range rapid.IntRange(0, 2*n).Draw(t, "sent") {
			i := rapid.IntRange(0, len(keys)-1).Draw(t, "who")
			if rapid.IntRange(0, 4).Draw(t, "wrong") == 0 {
				sent = append(sent, wrong[i])
				continue
			}
			sent = append(sent, right[i])
			if s, known := set.Find(keys[i].SignerID); known &&
				(s.Status == StatusActive || s.GraceUntilVersion == version) {
				good[s.PublicKey] = true
			} else if known {
				lost[s.PublicKey] = true
			}
		}
		counted, err := Quorum(set, version, sent, payload, need)
		switch {
		case (err == nil) != (len(good) >= need):
			t.Fatalf("%d good of %d needed: %v", len(good), need, err)
		case err == nil && len(counted) != len(good):
			t.Fatalf("counted %d, want %d", len(counted), len(good))
		case err == nil && !slices.IsSortedFunc(counted, func(a, b Approval) int { return strings.Compare(a.SignerID, b.SignerID) }):
			t.Fatal("not sorted")
		case err != nil:
			_, revoked := err.(*RevokedKeyError)
			quorum, short := err.(*QuorumError)
			if revoked != (len(good)+len(lost) >= need) || short == revoked ||
				short && *quorum != (QuorumError{len(good), need}) {
				t.Fatalf("%d good, %d lost of %d: %v", len(good), len(lost), need, err)
			}
		}
	})
}

func TestKeyFile(t *testing.T) {
	k := testKey(t, 3)
	back, err := ParseKey(k.Bytes())
	if err != nil || back.Public() != k.Public() || back.SignerID != k.SignerID ||
		back.Sign(b3.Sum(nil), noon) != k.Sign(b3.Sum(nil), noon) {
		t.Fatalf("%v, %v", back, err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, k); got != "key of "+k.SignerID {
			t.Errorf("%s prints %q", verb, got)
		}
	}
	other := testKey(t, 4)
	for _, tt := range []struct{ old, to, field string }{
		{`"ed25519"`, `"rsa"`, "algo"},
		{k.Public(), other.Public(), "public_key"},
		{`"seed":"`, `"seed":"=`, "seed"},
		{k.SignerID, "k", "signer_id"},
		{`/key/v1`, `/key/v2`, "type"},
	} {
		_, err := ParseKey([]byte(strings.Replace(string(k.Bytes()), tt.old, tt.to, 1)))
		wantField(t, tt.old+" -> "+tt.to, err, tt.field)
	}
	if _, err := NewKey("k", bytes.NewReader(make([]byte, 32))); err == nil {
		t.Error("a key without realm")
	}
	if _, err := NewKey(k.SignerID, bytes.NewReader(nil)); err == nil {
		t.Error("a key without randomness")
	}
}

func TestDecode64IsStrict(t *testing.T) {
	good := encode64(bytes.Repeat([]byte{0xAB}, 32))
	for _, s := range []string{
		good[:43], good + "=", " " + good[1:], good[:10] + "\n" + good[11:], good[:10] + "\r" + good[11:], "\n" + good, strings.TrimRight(good, "="),
		strings.ReplaceAll(good, "+", "-"), good[:42] + "t=", "", "====",
	} {
		if s == good {
			continue
		}
		if _, ok := decode64(s, 32); ok {
			t.Errorf("%s passes", strconv.Quote(s))
		}
	}
	if b, ok := decode64(good, 32); !ok || len(b) != 32 {
		t.Errorf("%s does not pass", good)
	}
}

// No approval is never a quorum, whatever the caller asks for.
func TestQuorumOfNobody(t *testing.T) {
	for _, need := range []int{0, -1} {
		if got, err := Quorum(testSet(t, 1, 2), 2, nil, b3.Sum(nil), need); !errors.Is(err, ErrQuorum) {
			t.Errorf("need %d: %v, %v", need, got, err)
		}
	}
}
