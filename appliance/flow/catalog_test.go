package flow

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sample is a catalogue with one of everything, declared in the order given by turn.
func sample(turn int) *Catalog {
	c := NewCatalog(nil, nil)
	steps := []func(){
		func() {
			NewQueue[int](
				c,
				Spec{
					Service:   "registry",
					Name:      "proposals_tx",
					Cap:       512,
					Policy:    RejectNew,
					Producers: []string{HTTP},
					Consumers: []string{"pipeline"},
					Doc:       "429 `Busy`; `busy_rejections_total{endpoint=\"propose\"|\"supersede\"}`",
				},
			)
			NewQueue[int](
				c,
				Spec{Service: "registry", Name: "cfg_reload_tx", Cap: 16, Policy: Collapse, Producers: []string{HTTP},
					Consumers: []string{"pipeline"}},
			)
			NewQueue[int](
				c,
				Spec{Service: "registry", Name: "approvals_tx", Cap: 64, Policy: RejectNew, Producers: []string{HTTP},
					Consumers: []string{"pipeline"}},
			)
		},
		func() {
			NewBroadcast[int](
				c,
				Spec{
					Service:   "registry",
					Name:      "committed_tx",
					Cap:       1024,
					Producers: []string{"store.committer"},
					Consumers: []string{"publisher", "verifier", "sse"},
					Doc:       "`bus_lagged_total`;\nreconcile from state",
				},
			)
		},
		func() {
			NewWatch(c,
				Spec{Service: "node", Name: "lifecycle", Producers: []string{"supervisor"}, Consumers: []string{"*"}},
				Booting)
		},
		func() {
			c.Declare(Spec{Service: "registry", Name: "shutdown_rx", Kind: KindWatch, Cap: 1, Policy: LastWins,
				Producers: []string{"node.supervisor"}, Consumers: []string{"*"}, Doc: "the cell `node.lifecycle`"})
		},
		func() { Every(c, Spec{Service: "registry", Name: "verify_tick", Consumers: []string{"verifier"}}, 1) },
		func() {
			NewQueue[int](c, Spec{Service: "store", Name: "work", Cap: 2048, Policy: WaitDeadline,
				Producers: []string{"registry.pipeline", HTTP}, Consumers: []string{"committer"}})
			NewQueue[int](
				c,
				Spec{Service: "store", Name: "bulk", Cap: 16, Policy: WaitDeadline, Consumers: []string{"committer"}},
			)
		},
		func() { NewMutex(c, "registry", RankCounters); NewMutex(c, "registry", RankRunRegistry) },
		func() { NewMutex(c, "registry", RankCounters) },
		func() {
			c.DeclareTask(Task{Service: "registry", Name: "pipeline", Doc: "the only writer of HEAD"},
				Task{Service: "registry", Name: "verifier", Background: true},
				Task{Service: "registry", Name: "publisher", Count: 2})
		},
		func() { c.DeclareTask(Task{Service: "store", Name: "committer", Restart: Never}) },
	}
	for i := range steps {
		steps[(i+turn)%len(steps)]()
	}
	return c
}

// What is printed does not depend on the order of declaration.
func TestCatalogGolden(t *testing.T) {
	for turn := range 10 {
		c := sample(turn)
		js, err := json.MarshalIndent(c.Doc(), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		for name, got := range map[string]string{"catalog.md": c.Markdown(), "catalog.mmd": c.Mermaid(), "overview.mmd": c.Overview(), "catalog.json": string(js) + "\n"} {
			file := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || got != string(want) {
				t.Errorf("turn %d: %s differs (%v):\n%s", turn, name, err, got)
			}
		}
	}
}

func TestEmptyCatalog(t *testing.T) {
	c := NewCatalog(nil, nil)
	js, err := json.MarshalIndent(c.Doc(), "", "  ")
	var doc map[string][]any
	if err != nil || json.Unmarshal(js, &doc) != nil || doc["channels"] == nil || doc["tasks"] == nil ||
		doc["locks"] == nil {
		t.Errorf("JSON = %s, %v", js, err)
	}
	if c.Markdown() != "" || c.Mermaid() != "flowchart LR\n" || c.Check() != nil {
		t.Errorf("Markdown = %q, Mermaid = %q", c.Markdown(), c.Mermaid())
	}
}

func TestCatalogRefusesBugs(t *testing.T) {
	queue := Spec{Service: "x", Name: "q", Cap: 1, Policy: Wait}
	for _, tt := range []struct {
		want string
		do   func(c *Catalog)
	}{
		{"x.q is declared twice", func(c *Catalog) { NewQueue[int](c, queue); NewWatch(c, queue, 1) }},
		{"needs both names", func(c *Catalog) { NewWatch(c, Spec{Service: "x"}, 1) }},
		{"needs a capacity", func(c *Catalog) { NewQueue[int](c, Spec{Service: "x", Name: "q", Policy: Wait}) }},
		{"needs an overflow policy", func(c *Catalog) { NewQueue[int](c, Spec{Service: "x", Name: "q", Cap: 1}) }},
		{"unknown kind", func(c *Catalog) { c.Declare(queue) }},
		{"task x.t is declared twice", func(c *Catalog) { c.DeclareTask(Task{Service: "x", Name: "t"}, Task{Service: "x", Name: "t"}) }},
		{"needs both names", func(c *Catalog) { c.DeclareTask(Task{Name: "t"}) }},
	} {
		if text := wantPanic(t, func() { tt.do(NewCatalog(nil, nil)) }); !strings.Contains(text, tt.want) {
			t.Errorf("panic = %q, want %q", text, tt.want)
		}
	}
}

func TestCheckNamesStrangers(t *testing.T) {
	err := sample(0).Check()
	for _, name := range []string{"sse", "supervisor", "node.supervisor"} {
		if err == nil || !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Errorf("Check = %v, want %q named", err, name)
		}
	}
	if strings.Contains(err.Error(), "pipeline") || strings.Contains(err.Error(), "http") {
		t.Errorf("Check = %v", err)
	}
}

// A queue closes with the last of its producers, wherever they live; one without declared producers
// never by itself.
func TestCloseFedBy(t *testing.T) {
	c := NewCatalog(nil, nil)
	queue := func(name string, producers ...string) *Queue[int] {
		return NewQueue[int](c, Spec{Service: "x", Name: name, Cap: 1, Policy: Wait, Producers: producers})
	}
	gate, both, own, far, orphan := queue("gate", HTTP), queue("both", HTTP, "a"), queue("own", "a", "b"), queue(
		"far",
		"y.a",
	), queue("orphan")
	bus := NewBroadcast[int](c, Spec{Service: "x", Name: "bus", Cap: 1, Producers: []string{"b"}})
	sub := bus.Subscribe("test")
	for _, tt := range []struct {
		service, producer string
		open              string
	}{
		{"y", HTTP, "gate both own far orphan bus"},
		{"x", HTTP, "both own far orphan bus"},
		{"x", "a", "own far orphan bus"},
		{"x", "a", "own far orphan bus"},
		{"x", "b", "far orphan"},
		{"y", "a", "orphan"},
	} {
		c.CloseFedBy(tt.service, tt.producer)
		var open []string
		for name, q := range map[string]*Queue[int]{"gate": gate, "both": both, "own": own, "far": far, "orphan": orphan} {
			if q.TrySend(1) != ErrClosed {
				open = append(open, name)
			}
		}
		if !sub.Closed() {
			open = append(open, "bus")
		}
		if len(open) != len(strings.Fields(tt.open)) {
			t.Errorf("after %s.%s: open %v, want %s", tt.service, tt.producer, open, tt.open)
		}
	}
}

// A task may be called "http" like the handlers, and is not taken for them.
func TestCloseFedByTellsHandlersFromATask(t *testing.T) {
	c := NewCatalog(nil, nil)
	handlers := NewQueue[int](c, Spec{Service: "node", Name: "a", Cap: 9, Policy: Wait, Producers: []string{HTTP}})
	task := NewQueue[int](c, Spec{Service: "node", Name: "b", Cap: 9, Policy: Wait, Producers: []string{"node.http"}})
	c.CloseFedBy("node", HTTP)
	if handlers.TrySend(1) != ErrClosed || task.TrySend(1) != nil {
		t.Error("the gate closes what handlers feed, and only that")
	}
	s := NewSupervisor(t.Context(), c, Hooks{})
	defer s.Close()
	s.Start(Task{Service: "node", Name: "http", Run: func(context.Context) error { return nil }})
	s.Drain("node", time.Minute, 0)
	if task.TrySend(1) != ErrClosed {
		t.Error("the end of the task did not close its queue")
	}
}

// Tasks that name a queue of another service as a lane are its producers, by service and then in
// their own order.
func TestLanes(t *testing.T) {
	c := NewCatalog(nil, nil)
	work := NewQueue[int](
		c,
		Spec{Service: "store", Name: "work", Cap: 1, Policy: Wait, Producers: []string{"node.janitor", HTTP}},
	)
	for _, name := range []string{"registry.pipeline", "wallet.worker", "wallet.ticker", "ledger.flusher", "ledger.expirer"} {
		service, task, _ := strings.Cut(name, ".")
		c.DeclareTask(Task{Service: service, Name: task, Lanes: []string{"store.work"}})
	}
	want := "node.janitor http ledger.flusher ledger.expirer registry.pipeline wallet.worker wallet.ticker"
	if got := strings.Join(c.Specs()[0].Producers, " "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, name := range strings.Fields(strings.ReplaceAll(want, HTTP, "store.http")) {
		if err := work.TrySend(1); err != nil {
			t.Fatalf("closed before %s has returned: %v", name, err)
		}
		<-work.C()
		if service, task, _ := strings.Cut(name, "."); service == "store" {
			c.CloseFedBy(service, HTTP)
		} else {
			c.CloseFedBy(service, task)
		}
	}
	if work.TrySend(1) != ErrClosed {
		t.Error("open although no producer is left")
	}
	c.DeclareTask(Task{Service: "x", Name: "y", Lanes: []string{"store.none"}})
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "store.none") {
		t.Errorf("a lane that is no channel: %v", err)
	}
}

// A drain follows the channels from the handlers on, cancels background tasks at once, and ends
// with what only another service can end.
func TestShutdownSequence(t *testing.T) {
	c := NewCatalog(nil, nil)
	queue := func(name, from, to string) {
		NewQueue[int](
			c,
			Spec{
				Service:   "s",
				Name:      name,
				Cap:       1,
				Policy:    RejectNew,
				Producers: []string{from},
				Consumers: []string{to},
			},
		)
	}
	queue("in", HTTP, "first")
	queue("mid", "first", "last")
	queue("never", "other.task", "waits")
	for _, name := range []string{"first", "last", "waits"} {
		c.DeclareTask(Task{Service: "s", Name: name})
	}
	c.DeclareTask(Task{Service: "s", Name: "aside", Background: true})
	var steps []string
	for line := range strings.Lines(c.ShutdownSequence("s")) {
		if !strings.HasPrefix(line, "  participant") {
			steps = append(steps, strings.TrimSpace(line))
		}
	}
	want := []string{
		"sequenceDiagram",
		"supervisor->>http: shutdown, new work is refused",
		"supervisor-xaside: cancelled",
		"http-->>supervisor: intake stopped",
		"http->>first: in closed",
		"first-->>supervisor: drained, or aborted at the deadline",
		"first->>last: mid closed",
		"last-->>supervisor: drained, or aborted at the deadline",
		"waits-->>supervisor: drained, or aborted at the deadline",
	}
	if !slices.Equal(steps, want) {
		t.Errorf("%q", steps)
	}
	if other := c.ShutdownSequence("other"); other != "" {
		t.Errorf("a service without handlers: %s", other)
	}
}
