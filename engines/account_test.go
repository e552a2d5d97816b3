package engines

import (
	"regexp"
	"strings"
	"testing"
)

var (
	accountRule = regexp.MustCompile(`\A[A-Za-z0-9:/_-]{1,256}\z`)
	assetRule   = regexp.MustCompile(`\A[a-z0-9]{1,16}\z`)
)

func FuzzNames(f *testing.F) {
	for _, s := range []string{"", "alice", "shop:till/7_a-B", "sys:issue:ron", "a b", "a.b", "é", "a\n", "ron", "RON", "0", ";", strings.Repeat("a", 16),
		strings.Repeat("a", 17), strings.Repeat("a", 256), strings.Repeat("a", 257)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if err := CheckAccount(s); (err == nil) != accountRule.MatchString(s) {
			t.Errorf("account %q: %v", s, err)
		}
		if err := CheckAsset(s); (err == nil) != assetRule.MatchString(s) {
			t.Errorf("asset %q: %v", s, err)
		}
	})
}

func TestIssuanceAccount(t *testing.T) {
	name := IssuanceAccount("ron")
	if name != "sys:issue:ron" || !IsSystemAccount(name) || CheckAccount(name) != nil ||
		IsSystemAccount("system:issue") {
		t.Errorf("%s: system %v, %v", name, IsSystemAccount(name), CheckAccount(name))
	}
}
