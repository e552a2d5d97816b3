package checkpoint

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// testWitness holds the key of a witness, its vkey and its verifier.
func testWitness(t *testing.T, name string, seed byte) (key ed25519.PrivateKey, vkey string, w Witness) {
	t.Helper()
	key = ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), 32)))
	public := key.Public().(ed25519.PublicKey)
	vkey = fmt.Sprintf("%s+%08x+%s", name, keyHash(name, algCosigned, public),
		base64.StdEncoding.EncodeToString(append([]byte{algCosigned}, public...)))
	w, err := ParseWitness(vkey)
	if err != nil {
		t.Fatal(err)
	}
	return key, vkey, w
}

func cosignLine(w Witness, key ed25519.PrivateKey, t Tree, at uint64) string {
	raw := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, w.KeyHash()), at)
	raw = append(raw, ed25519.Sign(key, cosigned(at, []byte(t.Text())))...)
	return "— " + w.name + " " + base64.StdEncoding.EncodeToString(raw) + "\n"
}

// A note takes one line for each key. It is whole only with lines of known witnesses.
func TestLinesOfWitnesses(t *testing.T) {
	log, _ := newKey(t, origin, 1)
	signed, err := log.Sign(tree(7, 3), time.Unix(1_800_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := NewKeys([]string{log.VKey})
	if err != nil {
		t.Fatal(err)
	}
	key, _, w := testWitness(t, "w.example", 'a')
	otherKey, _, other := testWitness(t, "w.example", 'b') // after a change of its key
	first, later, third := cosignLine(w, key, signed.Tree, 1), cosignLine(w, key, signed.Tree, 2), cosignLine(other,
		otherKey, signed.Tree, 3)
	note := AddLine(AddLine(AddLine(signed.Note, first), third), later)
	if want := string(signed.Note) + third + later; string(note) != want {
		t.Errorf("%s\nwant %s", note, want)
	}
	if got := (&Signed{Tree: signed.Tree, Note: note}).Witnessed(); got != third+later {
		t.Errorf("witnessed: %s", got)
	}
	if err := errors.Join(keys.Whole(signed.Note, nil), keys.Whole(note, []Witness{w, other})); err != nil {
		t.Error(err)
	}
	if err := keys.Whole(note, []Witness{w}); !errors.Is(err, ErrSigner) {
		t.Errorf("with a line of nobody: %v", err)
	}
	if _, err := keys.Open(note); err != nil {
		t.Error(err)
	}
	now := time.Unix(100, 0)
	for at, ok := range map[uint64]bool{0: false, 1: true, 100 + 5*60: true, 101 + 5*60: false, 1 << 63: false} {
		if line, err := w.Cosignature(signed.Tree, []byte(third+cosignLine(w, key, signed.Tree, at)),
			now); (err == nil) != ok ||
			ok != (line != "") {
			t.Errorf("of second %d: %q, %v", at, line, err)
		}
	}
}

func TestPolicies(t *testing.T) {
	_, a, _ := testWitness(t, "a.example", 'a')
	_, b, _ := testWitness(t, "b.example", 'b')
	got, err := ParsePolicy(
		"# whom we ask\n\nlog x\nwitness a " + a + " https://a.example/w\nwitness b " + b + "\ngroup g any a b\nquorum g\n",
	)
	if err != nil || len(got) != 2 || got[0].Name() != "a.example" || got[0].URL != "https://a.example/w" ||
		got[1].URL != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParsePolicy(""); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"x\n", "witness a\n", "witness a " + a[1:] + " https://a\n", "witness a " + a + " https://a more\n"} {
		if _, err := ParsePolicy("\n" + bad); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
