package checkup

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/host"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
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
	cfg := config.Default()
	cfg.Node.DataDir = t.TempDir()
	for bind, want := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true} {
		cfg.Server.Bind, cfg.Server.Plaintext = bind, true
		found := slices.ContainsFunc(Of(t.Context(), cfg, time.Time{}, false), func(f host.Finding) bool {
			return f.Check == "plaintext" && f.Level == host.Warn
		})
		if found != want {
			t.Errorf("%s: warned %v, want %v", bind, found, want)
		}
	}
}

// Each condition alone allows a node in memory to start. Without any, the error lists the possible
// remedies.
func TestAmnesiaStartConditions(t *testing.T) {
	no := errors.New("not allowed")
	disk, zram := []host.SwapArea{{Name: "/dev/sda2"}}, []host.SwapArea{{Name: "/dev/zram0"}}
	for _, tt := range []struct {
		doc     string
		allowed bool
		areas   []host.SwapArea
		err     error
		group   int64
		lock    error
		want    bool
	}{
		{"no swap", false, nil, nil, 0, no, true},
		{"compressed memory only", false, zram, nil, 0, no, true},
		{"none for the control group", false, disk, nil, noSwap, no, true},
		{"memory is locked", false, disk, nil, 0, nil, true},
		{"whoever runs it does not mind", true, disk, nil, 0, no, true},
		{"swap", false, disk, nil, 0, no, false},
		{"nobody can tell", false, nil, no, 0, no, false},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			err := unswappable(tt.allowed,
				func() ([]host.SwapArea, error) { return tt.areas, tt.err },
				func() (host.Limits, error) { return host.Limits{Group: host.Group{Swap: tt.group}}, nil },
				func() error { return tt.lock })
			if (err == nil) != tt.want {
				t.Errorf("%v", err)
			}
			out := process.OutcomeOf(err)
			if err != nil && (out.Code != process.ExitConfig || !strings.Contains(out.Next, "swapoff")) {
				t.Errorf("%v: exit %d, next %q", err, out.Code, out.Next)
			}
		})
	}
}
