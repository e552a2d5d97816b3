package console

import (
	"strings"
	"testing"

	"ronbox/httpapi/wire"
	"ronbox/httpapi/wire/node"
)

// Queues between services are lines; those within one are not drawn.
func TestDraw(t *testing.T) {
	d := draw([]node.QueueInfo{
		{Service: "edge", Name: "work_tx", Kind: "queue", Cap: 10, Len: 9, Producers: []string{"http"}},
		{Service: "edge", Name: "cas_tx", Kind: "queue", Cap: 10, Producers: []string{"worker"}},
		{Service: "store", Name: "work", Kind: "queue", Cap: 10, Dropped: 3, Producers: []string{"edge.cas_writer"}},
		{Service: "edge", Name: "packs", Kind: "watch", Producers: []string{"node.reloader"}},
	})
	if len(d.Boxes) != 3 || len(d.Lines) != 2 {
		t.Fatalf("%d boxes, %d lines: %+v", len(d.Boxes), len(d.Lines), d)
	}
	in, out := d.Lines[0], d.Lines[1]
	if !in.Full || in.Dropped || in.Width != "6.9" || !strings.Contains(in.Title, "edge.work_tx: 9 of 10") {
		t.Errorf("http to edge: %+v", in)
	}
	if out.Full || !out.Dropped {
		t.Errorf("edge to store: %+v", out)
	}
	if empty := draw(nil); len(empty.Lines) != 0 || len(empty.Boxes) != 2 {
		t.Errorf("of no queues: %+v", empty)
	}
}

// A service that was not asked for is no fault.
func TestLightOfAService(t *testing.T) {
	d := overviewData{Off: map[string]bool{"index": true}}
	d.Status.V.Services = map[string]wire.ServiceReady{
		"registry": {WriteReady: true, State: "not_begun"}, "edge": {}, "wallet": {Ready: true, WriteReady: true},
		"rewarder": {Ready: true},
	}
	for service, want := range map[string]light{
		"registry": {"good", "not begun"}, "edge": {"bad", "not ready"}, "wallet": {"good", "ready"},
		"rewarder": {"warn", "no writes"}, "index": {"warn", "off"}, "unknown": {"good", "on"},
	} {
		if got := d.light(service); got != want {
			t.Errorf("%s: %v, want %v", service, got, want)
		}
	}
}
