package checkpoint

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// vkeyOf returns the vkey of a witness with a key made of seed.
func vkeyOf(name string, seed byte) string {
	private := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(seed), ed25519.SeedSize)))
	public := private.Public().(ed25519.PublicKey)
	w := Witness{name: name, public: public}
	return fmt.Sprintf("%s+%08x+%s", name, w.KeyHash(),
		base64.StdEncoding.EncodeToString(append([]byte{algCosigned}, public...)))
}

func TestPolicyQuorum(t *testing.T) {
	three := ""
	for i, local := range []string{"a", "b", "c"} {
		three += "witness " + local + " " + vkeyOf(local+".example", byte('1'+i)) + " https://" + local + ".example\n"
	}
	for _, tt := range []struct {
		lines string
		who   string // that hold
		want  bool
	}{
		{"quorum a", "a", true},
		{"quorum a", "bc", false},
		{"quorum none", "", true},
		{"group g any a b c\nquorum g", "c", true},
		{"group g any a b c\nquorum g", "", false},
		{"group g all a b c\nquorum g", "ab", false},
		{"group g all a b c\nquorum g", "abc", true},
		{"group g 2 a b c\nquorum g", "ac", true},
		{"group g 2 a b c\nquorum g", "a", false},
		{"group g any a b\ngroup h all g c\nquorum h", "bc", true},
		{"group g any a b\ngroup h all g c\nquorum h", "ab", false},
		{"# a comment\nlog x+00000000+AA\nquorum b", "b", true},
	} {
		p, err := ReadPolicy(three + tt.lines + "\n")
		if err != nil {
			t.Errorf("%q: %v", tt.lines, err)
			continue
		}
		if got := p.Met(func(w Witness) bool { return strings.Contains(tt.who, w.name[:1]) }); got != tt.want {
			t.Errorf("%q met by %q = %v", tt.lines, tt.who, got)
		}
	}
	for _, lines := range []string{
		"", "quorum", "quorum d", "quorum a b", "quorum a\nquorum b", "group g any\nquorum a", "group g 0 a\nquorum g", "group g 3 a b\nquorum g",
		"group g x a\nquorum g", "group g any d\nquorum g", "group a any b\nquorum a", "group g any a a\nquorum g", "group g any g\nquorum g",
		"group g any a\ngroup h any a\nquorum h", "group none any a\nquorum none", "group g any none\nquorum g", "quorum g\ngroup g any a",
		"nonsense\nquorum a", "witness a " + vkeyOf("a.example", '9') + "\nquorum a",
	} {
		if _, err := ReadPolicy(three + lines + "\n"); !errors.Is(err, ErrPolicy) {
			t.Errorf("%q: %v", lines, err)
		}
	}
}
