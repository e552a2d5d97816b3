package appliance

import (
	"slices"
	"testing"

	"ronbox/appliance/config"
)

// Doctor looks at the permissions of every key that the node reads or that init makes.
func TestPrivateFilesAreAllKeys(t *testing.T) {
	cfg := config.Default()
	cfg.Node.DataDir = "/d"
	got := needs(cfg).Private
	for _, name := range []string{DatabaseName, SecretName, TokenName, SignerName, LogKeyName, PolicyKeyName} {
		if !slices.Contains(got, "/d/"+name) {
			t.Errorf("%s is not looked at: %v", name, got)
		}
	}
	cfg.Registry.Checkpoint.LogKeyPath = "/keys/log.key"
	if got := needs(cfg).Private; !slices.Contains(got, "/keys/log.key") {
		t.Errorf("the log key of another place: %v", got)
	}
}
