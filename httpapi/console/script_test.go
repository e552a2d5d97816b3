package console

import (
	"regexp"
	"testing"
)

// The script takes no fragment for a code but one that has the form of a code, and only at the
// entrance: a browser keeps the fragment of a page that leads to the entrance.
func TestScriptKnowsCodes(t *testing.T) {
	script := string(staticFiles()["console.js"].bytes)
	found := regexp.MustCompile(`location\.pathname === "` + enterPath + `" && /(\S+)/\.exec\(location\.hash\)`).
		FindStringSubmatch(script)
	if found == nil {
		t.Fatal("the script does not compare the path and the fragment")
	}
	code := regexp.MustCompile(found[1])
	if one := secret(); !code.MatchString("#" + one) {
		t.Errorf("%s is not taken for a code", one)
	}
	for _, fragment := range []string{"", "#", "#audit", "#sessions", "#" + secret() + "x", "#" + secret()[1:], "#a b"} {
		if code.MatchString(fragment) {
			t.Errorf("%q is taken for a code", fragment)
		}
	}
}
