package checkup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/host"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines/archive"
	nodeapi "ronbox/httpapi/wire/node"
)

// A node without a schedule is warned of, unless it is a dev node or keeps nothing. One with a schedule
// has the finding about its snapshots.
func TestNoScheduleIsAWarning(t *testing.T) {
	scheduled := host.Finding{Check: "backup", Level: host.OK, Seen: "the last snapshot is new"}
	for doc, tt := range map[string]struct {
		dev, amnesia, standby bool
		every                 time.Duration
		want                  host.Level
	}{
		"a node":                  {want: host.Warn},
		"a dev node":              {dev: true, want: host.OK},
		"in memory":               {amnesia: true, want: host.OK},
		"a member that stands by": {standby: true, want: host.OK},
		"with a schedule":         {every: time.Hour, want: host.OK},
	} {
		cfg := config.Default()
		cfg.Node.DataDir, cfg.Amnesia.Enabled = t.TempDir(), tt.amnesia
		cfg.Store.SnapshotEvery = unit.Duration(tt.every)
		if tt.dev {
			key := cfg.Path(config.SignerName)
			if err := errors.Join(os.MkdirAll(filepath.Dir(key), 0o700), os.WriteFile(key, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		f := Backup(cfg, tt.standby, func() host.Finding { return scheduled })
		if f.Level != tt.want || (f.Advice != "") != (tt.want == host.Warn) || (f == scheduled) != (tt.every > 0) {
			t.Errorf("%s: %+v", doc, f)
		}
	}
}

// Each state of an archive but ok carries its advice, and one in which changes are lost is a problem.
func TestArchiveStates(t *testing.T) {
	levels := map[archive.State]host.Level{
		archive.StateOK: host.OK, archive.StateStarting: host.Warn, archive.StateBehind: host.Warn,
	}
	for _, state := range archive.States() {
		s := nodeapi.Archive{State: string(state), Target: "file:///mnt", Seq: 7, SentSeq: 5, LastError: "why"}
		if state != archive.StateOK {
			s.Advice = "do this"
		}
		want, ok := levels[state]
		if !ok {
			want = host.Bad
		}
		f := Archive(s)
		if len(f) != 1 || f[0].Level != want || f[0].Advice != s.Advice ||
			f[0].Seen != s.State+": command 5 of 7 is in file:///mnt: why" {
			t.Errorf("%s: %+v", state, f)
		}
	}
	f := Archive(nodeapi.Archive{State: string(archive.StateOK), Target: "file:///mnt", Advice: "prune elsewhere"})
	if len(f) != 1 || f[0].Level != host.Warn {
		t.Errorf("a step that has failed: %+v", f)
	}
	if f := Archive(nodeapi.Archive{State: string(archive.StateOff)}); f != nil {
		t.Errorf("off: %+v", f)
	}
}

// A closing that failed is warned of, with the advice of its problem if it has one.
func TestClosingFailed(t *testing.T) {
	if f := Closing(nodeapi.LedgerClosing{State: "exporting"}); f != nil {
		t.Errorf("under way: %+v", f)
	}
	s := nodeapi.LedgerClosing{State: "failed", Error: "a fault", File: "/p/x"}
	for reason, advice := range map[string]string{
		"": "correct the cause", nodeapi.ReasonCloseFileDiffers: "/p/x", nodeapi.ReasonCloseNoRoom: "--out-dir",
	} {
		s.Reason = reason
		f := Closing(s)
		if len(f) != 1 || f[0].Level != host.Warn || !strings.Contains(f[0].Seen, "a fault") ||
			!strings.Contains(f[0].Advice, advice) {
			t.Errorf("%q: %+v", reason, f)
		}
	}
}

// A target on the disk of the data is warned of, even before it is mounted. Without one the finding
// says what is lost.
func TestArchiveTarget(t *testing.T) {
	data := t.TempDir()
	for target, want := range map[string]host.Level{
		"": host.OK, "file://" + data: host.Warn, "file://" + data + "/not/mounted": host.Warn, "file:///proc": host.OK,
		"s3://bucket": "",
	} {
		cfg := config.Default()
		cfg.Node.DataDir, cfg.Archive.Target = data, target
		f := checkArchive(cfg)
		if want == "" {
			if f != nil {
				t.Errorf("%q: %+v", target, f)
			}
			continue
		}
		if len(f) != 1 || f[0].Level != want || (f[0].Advice == "") != (want == host.OK) ||
			(f[0].Check == "archive") != (target == "") {
			t.Errorf("%q: %+v", target, f)
		}
	}
}
