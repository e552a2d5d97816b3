package registry

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/rverify"
	registryapi "ronbox/httpapi/wire/registry"
)

// testWitness cosigns checkpoints.
type testWitness struct {
	name string
	key  ed25519.PrivateKey
}

func newTestWitness(name string) testWitness {
	return testWitness{name, ed25519.NewKeyFromSeed(bytes.Repeat([]byte(name[:1]), ed25519.SeedSize))}
}

func (w testWitness) public() []byte { return append([]byte{4}, w.key.Public().(ed25519.PublicKey)...) }

func (w testWitness) hash() []byte {
	sum := sha256.Sum256(append([]byte(w.name+"\n"), w.public()...))
	return sum[:4]
}

func (w testWitness) line() string {
	return fmt.Sprintf("witness %s %s+%x+%s\n", w.name, w.name, w.hash(), base64.StdEncoding.EncodeToString(w.public()))
}

// cosign adds the cosignature of w.
func (w testWitness) cosign(s checkpoint.Signed) checkpoint.Signed {
	at := uint64(s.At.Unix())
	raw := binary.BigEndian.AppendUint64(w.hash(), at)
	raw = append(raw, ed25519.Sign(w.key, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, s.Text()))...)
	s.Note = append(slices.Clone(s.Note), fmt.Sprintf("— %s %s\n", w.name, base64.StdEncoding.EncodeToString(raw))...)
	return s
}

func TestJudgePicks(t *testing.T) {
	secret, _, err := note.GenerateKey(rand.Reader, "registry.example/main")
	if err != nil {
		t.Fatal(err)
	}
	key, err := checkpoint.ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	sign := func(size uint64, age time.Duration) checkpoint.Signed {
		s, err := key.Sign(
			checkpoint.Tree{Origin: key.Name, Size: size, Root: logtree.Leaf([]byte{byte(size)})},
			now.Add(-age),
		)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := newTestWitness("a"), newTestWitness("b")
	policy, err := checkpoint.ReadPolicy(a.line() + b.line() + "group g all a b\nquorum g\n")
	if err != nil {
		t.Fatal(err)
	}
	half, full, bare := a.cosign(sign(9, time.Minute)), b.cosign(a.cosign(sign(7, time.Hour))), sign(9, time.Minute)
	forged := full
	forged.Note = bytes.Replace(full.Note, []byte("\n7\n"), []byte("\n8\n"), 1)
	for _, tt := range []struct {
		doc    string
		policy *checkpoint.Policy
		maxAge time.Duration
		all    []checkpoint.Signed
		size   uint64
		want   uint64       // size of the picked checkpoint
		kind   rverify.Kind // of the fault
	}{
		{"no policy, any age", nil, 0, []checkpoint.Signed{bare, full}, 9, 9, ""},
		{"young enough", nil, 2 * time.Minute, []checkpoint.Signed{bare}, 9, 9, ""},
		{"too old", nil, 30 * time.Second, []checkpoint.Signed{bare, full}, 9, 9, rverify.KindTooOld},
		{"ahead of the clock", nil, time.Minute, []checkpoint.Signed{sign(9, -time.Hour)}, 9, 9, rverify.KindTooOld},
		{"of no time", nil, time.Minute, []checkpoint.Signed{{Tree: bare.Tree}}, 9, 9, rverify.KindTooOld},
		{"no checkpoint", nil, time.Minute, nil, 1, 0, rverify.KindTooOld},
		{"not that far", nil, time.Hour, []checkpoint.Signed{bare}, 10, 0, rverify.KindTooOld},
		{"both witnesses over what is asked", &policy, 0, []checkpoint.Signed{half, full}, 7, 7, ""},
		{"both witnesses, not that far", &policy, 0, []checkpoint.Signed{half, full}, 8, 0, rverify.KindWitness},
		{"one of two", &policy, 0, []checkpoint.Signed{half}, 1, 0, rverify.KindWitness},
		{"none", &policy, 0, []checkpoint.Signed{bare}, 1, 0, rverify.KindWitness},
		{"of another text", &policy, 0, []checkpoint.Signed{forged}, 1, 0, rverify.KindWitness},
		{"both witnesses, long ago", &policy, time.Minute, []checkpoint.Signed{half, full}, 7, 7, rverify.KindTooOld},
	} {
		got, err := judge{tt.policy, tt.maxAge, now}.pick(tt.all, tt.size)
		kind, code := rverify.Kind(""), 0
		if fault := asFault(err); fault != nil {
			kind, code = fault.kind, fault.code()
		} else if err != nil {
			t.Errorf("%s: %v", tt.doc, err)
		}
		want := map[rverify.Kind]int{"": 0, rverify.KindWitness: 20, rverify.KindTooOld: 24}[tt.kind]
		if got.Size != tt.want || kind != tt.kind || code != want {
			t.Errorf("%s: size %d, kind %q, exit %d, %v", tt.doc, got.Size, kind, code, err)
		}
	}
}

// The file of --policy may follow it with a space, before the arguments of the verb or after them.
func TestPolicyFileArgument(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy")
	if err := os.WriteFile(file, []byte("quorum none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		policy string
		args   []string
		n      int
		want   string
	}{
		{signedPolicy, nil, 0, signedPolicy},
		{signedPolicy, []string{file}, 0, file},
		{signedPolicy, []string{"absent"}, 0, "absent"},
		{signedPolicy, []string{"a"}, 1, signedPolicy},
		{signedPolicy, []string{"a", file}, 1, file},
		{signedPolicy, []string{file, "a"}, 1, file},
		{file, []string{"a"}, 1, file},
	} {
		f := judgeFlags{policy: tt.policy}
		own := f.take(tt.args, tt.n)
		if f.policy != tt.want || len(own) != tt.n || tt.n == 1 && own[0] != "a" {
			t.Errorf("%v: policy %q, arguments %v", tt.args, f.policy, own)
		}
	}
}

func TestPolicyThatIsNone(t *testing.T) {
	_, err := newJudge(judgeFlags{policy: signedPolicy}, time.Now(), func() (string, error) { return "", nil })
	if fault := asFault(err); fault == nil || fault.code() != registryapi.ExitQuorum || !errors.Is(err, fault) {
		t.Errorf("no signed policy: %v", err)
	}
}
