package follow

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/export"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/rverify"
)

// OpenExport returns the log of an export in a directory, as a hub.
func OpenExport(dir string) (Hub, error) {
	log, err := export.Open(dir)
	if err != nil {
		return nil, err
	}
	return &exportHub{dir: dir, log: log, turn: make(chan struct{}, 1)}, nil
}

// exportHub is an export as a follower reads it.
type exportHub struct {
	dir  string
	log  *export.Log
	turn chan struct{} // holds a token while log reads a version: it keeps the last file
}

// URL returns the directory.
func (h *exportHub) URL() string { return h.dir }

// Checkpoint implements Hub.
func (h *exportHub) Checkpoint(context.Context) ([]byte, error) { return h.log.Latest(), nil }

// Entry implements Hub.
func (h *exportHub) Entry(_ context.Context, v uint64) ([]byte, error) {
	h.turn <- struct{}{}
	raw, err := h.log.Entry(v)
	<-h.turn
	return bytes.Clone(raw), h.absent(v, err)
}

// Payload implements Hub.
func (h *exportHub) Payload(_ context.Context, v uint64) ([]byte, error) {
	h.turn <- struct{}{}
	raw, err := h.log.Payload(v)
	<-h.turn
	return bytes.Clone(raw), h.absent(v, err)
}

// absent returns the error of a version that could not be read.
func (h *exportHub) absent(v uint64, err error) error {
	switch {
	case !errors.Is(err, rverify.ErrMissing):
		return err
	case v < h.log.MinVersion:
		return document.ErrPruned
	}
	return document.ErrNotFound
}

// Horizon implements Hub.
func (h *exportHub) Horizon(context.Context) (out document.Horizon, err error) {
	at, err := h.log.Horizon()
	if err != nil || at == nil {
		return document.Horizon{MinVersion: 1}, err
	}
	out = document.Horizon{MinVersion: at.Min, Statement: string(at.Note)}
	for _, raw := range h.log.Epochs() {
		if v := binary.BigEndian.Uint64(raw); v < at.Min {
			out.Kept = append(out.Kept, v)
		}
	}
	return out, nil
}

// Items implements Hub.
func (h *exportHub) Items(context.Context, uint64) (out []jsontext.Value, err error) {
	at, err := h.log.Horizon()
	if err != nil || at == nil {
		return nil, errors.Join(err, document.ErrNotFound)
	}
	items, err := at.Items()
	for it := range items.All() {
		out = append(out, slices.Clone(it.Bytes))
	}
	return out, err
}

// Tile implements Hub.
func (h *exportHub) Tile(_ context.Context, path string) ([]byte, error) {
	at, width, _, err := logtree.ParsePath("tile/" + path)
	if err != nil {
		return nil, err
	}
	raw := h.log.Tile(at)
	if len(raw) < width*tlog.HashSize {
		return nil, document.ErrNotFound
	}
	return raw[:width*tlog.HashSize], nil
}

// Consistency implements Hub.
func (h *exportHub) Consistency(_ context.Context, from, to uint64) (tlog.TreeProof, error) {
	return logtree.Reader{Tiles: h.log.Tile}.Consistency(from, to)
}

// Hear implements Hub: an export does not change.
func (h *exportHub) Hear(context.Context, uint64, func(uint64)) error { return document.ErrNotFound }
