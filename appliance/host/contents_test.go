package host

import "testing"

func TestIsContents(t *testing.T) {
	for name, want := range map[string]bool{
		"lost+found":     false,
		"lost+found.old": true,
		".ronbox-sync-1": false,
		".ronbox":        true,
		"ronbox.db":      true,
	} {
		if IsContents(name) != want {
			t.Errorf("%s: want %v", name, want)
		}
	}
}
