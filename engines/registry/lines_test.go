package registry_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
	"ronbox/store"
)

// lines is a log that several goroutines write.
type lines struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

func (l *lines) logger(level hclog.Level) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Output: l, Level: level})
}

// Every decision has a record of the audit chain and a line of the log under the same name:
// versions at info, others at debug.
func TestEveryDecisionIsToldTwice(t *testing.T) {
	t.Parallel()
	for _, level := range []hclog.Level{hclog.Debug, hclog.Info} {
		out := &lines{}
		r, s := registrytest.New(t), newSigners(1, 1)
		r.Stop()
		r.Log = out.logger(level)
		r.Open()
		r.Start()
		r.Genesis(s, "a")
		p := r.Propose(2, "b")
		if _, err := r.Engine.Commit(r.Ctx(), alice, p.ID, "corr-early"); !errors.Is(err, record.ErrQuorum) {
			t.Fatal(err)
		}
		rival, gone := r.Propose(2, "rival"), r.Propose(2, "gone")
		if err := r.Engine.Withdraw(r.Ctx(), alice, gone.ID, "corr-withdraw"); err != nil {
			t.Fatal(err)
		}
		r.Approve(p, s.Keys...)
		r.Commit(p)
		if r.StateOf(rival) != document.StateStale {
			t.Errorf("the rival is %s", r.StateOf(rival))
		}
		page, err := r.Engine.Audit(r.Ctx(), 1, 100)
		if err != nil {
			t.Fatal(err)
		}
		r.Stop() // the last line is written after the last answer
		log := out.String()
		var events []string
		for _, raw := range page.Records {
			rec, err := record.ParseAudit(raw)
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, rec.Event)
			told := hasLine(log, rec.Event, rec.ProposalID, rec.CorrID, rec.Reason)
			if want := level == hclog.Debug || rec.Commits(); told != want {
				t.Errorf("at %s: %s of %q is told: %v", level, rec.Event, rec.ProposalID, told)
			}
		}
		want := []string{
			"genesis.done", "proposal.created", "commit.rejected", "proposal.created", "proposal.created",
			"proposal.withdrawn", "approve.recorded", "commit.done", "proposal.stale",
		}
		if !slices.Equal(events, want) {
			t.Errorf("events %q, want %q", events, want)
		}
		if strings.Contains(log, alice.CapID) || strings.Contains(log, s.Keys[0].Sign(p.PayloadB3, r.Now()).Sig) {
			t.Errorf("the log shows a token or a signature:\n%s", log)
		}
	}
}

func hasLine(log string, texts ...string) bool {
	for line := range strings.Lines(log) {
		if !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(line, s) }) {
			return true
		}
	}
	return false
}

// An engine that is dropped without Close logs a debug line; a closed one does not.
func TestDroppedUnclosed(t *testing.T) {
	out := &lines{}
	begin := func(name string) *registry.Engine {
		c := flow.NewCatalog(nil, nil)
		st := store.New(store.DefaultConfig(), store.Options{Path: filepath.Join(t.TempDir(), name), Catalog: c})
		return registry.New(registry.DefaultConfig(), registry.Deps{Catalog: c, Store: st, Log: out.logger(hclog.Debug).Named(name)})
	}
	begin("closed").Close(t.Context())
	begin("open")
	for end := time.Now().Add(time.Minute); !strings.Contains(out.String(),
		"open.registry: engine dropped without Close"); time.Sleep(time.Millisecond) {
		if runtime.GC(); time.Now().After(end) {
			t.Fatalf("nothing is said of it: %s", out)
		}
	}
	if strings.Contains(out.String(), "closed.registry") {
		t.Errorf("of one that was closed: %s", out)
	}
}
