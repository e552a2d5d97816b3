package views

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Deps holds the dependencies of a Reader. Board may be nil.
type Deps struct {
	Catalog   *flow.Catalog
	Store     *store.Store
	Published *tables.Published
	Log       hclog.Logger
	Board     *obs.Board
	Slots     *flow.Slots // one for each read of an old version that may run
	Copy      bool        // the log is a copy of that of another node, without its audit chain
	Counts    Counts
}

// Counts are the counters of a Reader.
type Counts struct {
	Timeouts func(int) // reads whose deadline passed
	Backoff  func(int) // tries that found no slot
}

// Reader reads the log and the proposals: HEAD from memory, the rest from the file, bounded by the
// published state. Its methods are safe for concurrent use.
type Reader struct {
	Codec tables.Codec // of payloads

	store     *store.Store
	pub       *tables.Published
	board     *obs.Board
	log       hclog.Logger
	copy      bool
	counts    Counts
	reread    flow.Retrier
	readSlots *flow.Slots
	cache     versionCache // open between Open and Close

	docFlight  *flow.Flight[docKey, struct{}, document.Encoded] // running encodings
	itemFlight *flow.Flight[uint64, struct{}, record.Items]     // running loads of old versions

	copied atomic.Pointer[reach] // of the file of a member that does not lead; stored by Stand
}

// New builds a reader and declares its cache and its flights.
func New(d Deps) *Reader {
	return &Reader{
		store: d.Store, pub: d.Published, board: d.Board, log: d.Log, copy: d.Copy, counts: d.Counts,
		Codec: tables.NewCodec(), readSlots: d.Slots,
		reread: flow.Retry(readDelay, readTries, func(err error) bool { return errors.Is(err, errReadsBusy) }).
			Counting(d.Catalog, tables.Service, "read"),
		cache: newVersionCache(d.Catalog),
		docFlight: flow.NewFlight[docKey, struct{}, document.Encoded](d.Catalog, flow.FlightSpec{
			Service: tables.Service, Name: "encode_version", Waiters: maxLoads, Calls: maxLoads,
		}),
		itemFlight: flow.NewFlight[uint64, struct{}, record.Items](d.Catalog, flow.FlightSpec{
			Service: tables.Service, Name: "load_version", Waiters: maxLoads, Calls: maxLoads,
		}),
	}
}

// Open opens the cache of old versions. The caller calls Close.
func (rd *Reader) Open() error { return rd.cache.Open() }

// Close ends the running loads of old versions and frees the cache. It may be called again, and
// without an Open before it.
func (rd *Reader) Close(ctx context.Context) error {
	err := errors.Join(rd.docFlight.Close(ctx), rd.itemFlight.Close(ctx))
	rd.CloseCache()
	return err
}

// CloseCache frees the cache of old versions. Reads go on without it.
func (rd *Reader) CloseCache() { rd.cache.Close() }

// Remember caches the items after a payload.
func (rd *Reader) Remember(p *record.Payload, items record.Items) { rd.cache.putItems(p, items) }

// Purge empties the cache of old versions.
func (rd *Reader) Purge() { rd.cache.Purge() }
