package httpapi

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines/registry"
	"ronbox/httpapi/wire"
)

const consumerSSE = "sse"

// getStream serves GET /registry/stream.
func (s *Server) getStream(c *call) error { return follow(s, c, s.registrySource(c)) }

func (s *Server) registrySource(c *call) *source[registry.Event] {
	reg := s.d.Registry
	return &source[registry.Event]{
		event: wire.EventUpdate, consumer: consumerSSE, places: s.streams, replayMax: uint64(c.live.sse.ReplayMax),
		subscribe: reg.Subscribe, since: reg.Since,
		tip: func(context.Context) (tip, error) {
			h := reg.Head()
			return tip{first: h.MinVersion, last: h.Head.Version, value: h}, nil
		},
		id:     func(e registry.Event) uint64 { return e.Version },
		hello:  helloOf,
		lagged: laggedOf,
	}
}

func helloOf(t tip) any {
	h := headOf(t)
	return struct {
		Incarnation string         `json:"incarnation"`
		Head        jsontext.Value `json:"head"`
	}{h.Incarnation, h.JSON}
}

func laggedOf(m missed, t tip) any {
	return struct {
		Missed uint64         `json:"missed"`
		From   uint64         `json:"from"`
		To     uint64         `json:"to"`
		Head   jsontext.Value `json:"head"`
	}{m.count, m.from, m.to, headOf(t).JSON}
}

// headOf is what the tip of the registry holds.
func headOf(t tip) *registry.HeadView { return t.value.(*registry.HeadView) }
