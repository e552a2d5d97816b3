package checkpoint

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const origin = "log.example/test"

func newKey(t testing.TB, name string, seed byte) (*Key, string) {
	t.Helper()
	skey, _, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 64)), name)
	if err != nil {
		t.Fatal(err)
	}
	k, err := ParseKey(skey)
	if err != nil {
		t.Fatal(err)
	}
	return k, skey
}

func tree(size uint64, fill byte) Tree {
	return Tree{Origin: origin, Size: size, Root: tlog.Hash(bytes.Repeat([]byte{fill}, 32))}
}

func TestSignAndOpen(t *testing.T) {
	k, _ := newKey(t, origin, 1)
	at := time.Unix(1_800_000_000, 5)
	signed, err := k.Sign(tree(7, 3), at)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := NewKeys([]string{k.VKey})
	if err != nil {
		t.Fatal(err)
	}
	got, err := keys.Open(signed.Note)
	if err != nil || got.Tree != signed.Tree || !got.At.Equal(time.Unix(1_800_000_000, 0)) {
		t.Errorf("opened: %+v, %v", got, err)
	}
	v, err := note.NewVerifier(k.VKey)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := note.Open(signed.Note, note.VerifierList(v)); err != nil || n.Text != signed.Text() ||
		len(n.UnverifiedSigs) != 1 {
		t.Errorf("by another reader of notes: %v", err)
	}
	again, err := k.Sign(tree(7, 3), at.Add(time.Hour))
	if err != nil || bytes.Equal(again.Note, signed.Note) {
		t.Errorf("a later signing shows no later time: %v", err)
	}
	if got, err := keys.Open(again.Note); err != nil || !got.At.After(signed.At) {
		t.Errorf("later: %v, %v", got.At, err)
	}
}

func TestOpenRefusals(t *testing.T) {
	k, _ := newKey(t, origin, 1)
	other, _ := newKey(t, origin, 2)
	foreign, _ := newKey(t, "log.example/other", 3)
	signed, err := k.Sign(tree(7, 3), time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	sign := func(k *Key, text string) []byte {
		raw, err := note.Sign(&note.Note{Text: text}, k.signer)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	keys, err := NewKeys([]string{k.VKey, foreign.VKey})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		doc  string
		raw  []byte
		want error
	}{
		{"nothing", nil, ErrForm},
		{"another key", sign(other, signed.Text()), ErrSigner},
		{"a trusted key of another log", sign(foreign, signed.Text()), ErrSigner},
		{"another text under the signature", bytes.Replace(signed.Note, []byte("\n7\n"), []byte("\n8\n"), 1), ErrForm},
		{"a fourth line", sign(k, signed.Text()+"more\n"), ErrForm},
		{"a size with a zero before it", sign(k, strings.Replace(signed.Text(), "\n7\n", "\n07\n", 1)), ErrForm},
		{"a root that is none", sign(k, origin+"\n7\nAAAA\n"), ErrForm},
		{"too long", bytes.Repeat([]byte("x"), MaxNote+1), ErrForm},
	} {
		if _, err := keys.Open(tt.raw); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.doc, err, tt.want)
		}
	}
	if _, err := k.Sign(Tree{Origin: "log.example/other"}, time.Unix(1, 0)); err == nil {
		t.Error("a key signs for another log")
	}
	if _, err := k.SignText(signed.Text()); err == nil {
		t.Error("another statement passes for a checkpoint")
	}
	raw, err := k.SignText(origin + "/retention\nx\n")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := keys.OpenText(raw); err != nil || text != origin+"/retention\nx\n" {
		t.Errorf("a statement: %q, %v", text, err)
	}
}

// A key that is in two signer sets, as after a change of signers, counts as one key.
func TestKeyOfTwoSets(t *testing.T) {
	k, _ := newKey(t, origin, 1)
	signed, err := k.Sign(tree(7, 3), time.Unix(1_800_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := NewKeys([]string{k.VKey, k.VKey})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := keys.Open(signed.Note); err != nil || !got.At.Equal(signed.At) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A forged time is refused: the cosignature covers it.
func TestForgedTime(t *testing.T) {
	k, _ := newKey(t, origin, 1)
	signed, err := k.Sign(tree(7, 3), time.Unix(1_800_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(signed.Note), "\n"), "\n")
	last := strings.Fields(lines[len(lines)-1])
	raw, err := base64.StdEncoding.DecodeString(last[2])
	if err != nil {
		t.Fatal(err)
	}
	raw[4+7]++ // a second later
	lines[len(lines)-1] = last[0] + " " + last[1] + " " + base64.StdEncoding.EncodeToString(raw)
	keys, err := NewKeys([]string{k.VKey})
	if err != nil {
		t.Fatal(err)
	}
	got, err := keys.Open([]byte(strings.Join(lines, "\n") + "\n"))
	if err != nil || !got.At.IsZero() {
		t.Errorf("the forged time is %v, %v", got.At, err)
	}
}

// Any flipped bit of a note is found, even a bit that base64 does not use.
func TestEveryBitOfANoteCounts(t *testing.T) {
	k, _ := newKey(t, origin, 1)
	signed, err := k.Sign(tree(7, 3), time.Unix(1_800_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	said, err := k.SignText(origin + "/retention\nx\n")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := NewKeys([]string{k.VKey})
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range [][]byte{signed.Note, said} {
		for bit := range 8 * len(raw) {
			flipped := bytes.Clone(raw)
			flipped[bit/8] ^= 1 << (bit % 8)
			if got, err := keys.Open(flipped); err == nil && !got.At.IsZero() {
				t.Errorf("bit %d is not missed in %q", bit, flipped)
			}
			if _, err := keys.OpenText(flipped); err == nil && &raw[0] == &said[0] {
				t.Errorf("bit %d is not missed in %q", bit, flipped)
			}
		}
	}
}

func TestWitnessKeys(t *testing.T) {
	public := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, 32)).Public().(ed25519.PublicKey)
	vkey := fmt.Sprintf("w.example+%08x+%s", keyHash("w.example", algCosigned, public),
		base64.StdEncoding.EncodeToString(append([]byte{algCosigned}, public...)))
	w, err := ParseWitness(vkey)
	if err != nil || w.Name() != "w.example" {
		t.Fatalf("%+v, %v", w, err)
	}
	for _, bad := range []string{"", "w.example", vkey[:len(vkey)-4], strings.Replace(vkey, "w.example+", "w.example+f", 1), "x" + vkey} {
		if _, err := ParseWitness(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if w.Verify([]byte("x"), make([]byte, 72)) || w.Verify([]byte("x"), nil) {
		t.Error("no signature is one")
	}
}

func TestKeyFile(t *testing.T) {
	_, skey := newKey(t, origin, 1)
	path := filepath.Join(t.TempDir(), "log.key")
	if _, err := ReadKey(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, tt := range []struct {
		text string
		mode os.FileMode
		ok   bool
	}{{skey + "\n", 0o600, true}, {skey, 0o600, true}, {skey, 0o644, false}, {"PRIVATE+KEY+x+00000000+AAAA", 0o600, false}, {"", 0o600, false}} {
		if err := errors.Join(os.WriteFile(path, []byte(tt.text), tt.mode), os.Chmod(path, tt.mode)); err != nil {
			t.Fatal(err)
		}
		k, err := ReadKey(path)
		if (err == nil) != tt.ok {
			t.Errorf("%q of mode %o: %v", tt.text, tt.mode, err)
		}
		if err != nil && len(tt.text) > 20 && strings.Contains(err.Error(), tt.text[20:]) {
			t.Errorf("the error quotes the key: %v", err)
		}
		if k != nil && strings.Contains(fmt.Sprintf("%v %+v %#v", k, k, k), skey[len(skey)-20:]) {
			t.Error("a key prints its secret")
		}
	}
}

func FuzzParseText(f *testing.F) {
	f.Add(tree(3, 1).Text())
	f.Add("\n\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := ParseText(text); err == nil && got.Text() != text {
			t.Errorf("%q is read as %q", text, got.Text())
		}
	})
}
