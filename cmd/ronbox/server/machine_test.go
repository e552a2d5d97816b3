package server

import (
	"slices"
	"testing"

	"ronbox/appliance/host"
	"ronbox/cmd/ronbox/server/config"
)

// Doctor looks at the permissions of every key that the node reads or that init makes.
func TestPrivateFilesAreAllKeys(t *testing.T) {
	cfg := config.Default()
	cfg.Node.DataDir = "/d"
	got := needs(cfg).Private
	for _, name := range []string{
		config.DatabaseName, config.SecretName, config.TokenName, config.SignerName, config.LogKeyName,
		config.PolicyKeyName,
	} {
		if !slices.Contains(got, "/d/"+name) {
			t.Errorf("%s is not looked at: %v", name, got)
		}
	}
	cfg.Registry.Checkpoint.LogKeyPath = "/keys/log.key"
	if got := needs(cfg).Private; !slices.Contains(got, "/keys/log.key") {
		t.Errorf("the log key of another place: %v", got)
	}
}

// The doctor warns of a node that other hosts reach without TLS.
func TestCheckupWarnsOfPlaintext(t *testing.T) {
	cfg := newConfig(t)
	for bind, want := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true} {
		cfg.Server.Bind, cfg.Server.Plaintext = bind, true
		found := slices.ContainsFunc(Checkup(t.Context(), cfg, Build{}, false), func(f host.Finding) bool {
			return f.Check == "plaintext" && f.Level == host.Warn
		})
		if found != want {
			t.Errorf("%s: warned %v, want %v", bind, found, want)
		}
	}
}
