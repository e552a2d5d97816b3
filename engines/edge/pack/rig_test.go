package pack

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"github.com/hashicorp/go-hclog"
	"io"
	"os"
	"path/filepath"
	"ronbox/store"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines/edge/pmtiles"
)

const realPacks = "../../../testdata/packs"

// rig is a set of packs on a real store in a temporary folder, with a supervisor.
type rig struct {
	t       testing.TB
	db, dir string // the file of the store, the folder of packs
	cfg     Config
	catalog *flow.Catalog
	store   *store.Store
	sup     *flow.Supervisor
	set     *Set
	stopped bool
}

// open opens the file, and makes a set without its tasks.
func (r *rig) open() {
	r.t.Helper()
	ctx := context.Background()
	r.catalog = flow.NewCatalog(nil, hclog.NewNullLogger())
	r.store = store.New(store.DefaultConfig(), store.Options{
		Path:      r.db,
		Catalog:   r.catalog,
		Producers: map[store.Lane][]string{store.Work: {"edge.verifier"}},
	})
	r.store.Declare(service, Buckets()...)
	r.set = New(r.dir, r.cfg, Deps{
		Catalog: r.catalog,
		Store:   r.store,
		Log:     hclog.NewNullLogger(),
		Event:   func(Info) {},
	})
	r.sup = flow.NewSupervisor(ctx, r.catalog, flow.Hooks{})
	if err := errors.Join(r.store.Open(ctx), r.store.Prepare(ctx)); err != nil {
		r.t.Fatalf("open: %v", err)
	}
	r.sup.Start(r.store.Tasks()...)
	r.stopped = false
	if err := r.set.Recover(ctx); err != nil {
		r.t.Fatalf("recover: %v", err)
	}
}

func (r *rig) start() { r.sup.Start(r.set.Tasks()...) }

// stop shuts down in order. It may be called again.
func (r *rig) stop() {
	if r.stopped {
		return
	}
	r.stopped = true
	r.catalog.CloseFedBy(service, flow.HTTP)
	r.sup.CancelBackground()
	r.sup.Drain(service, 5*time.Second, 5*time.Second)
	r.store.CloseLanes()
	r.sup.Drain("store", 5*time.Second, time.Second)
	r.sup.Close()
	r.set.Close()
	if err := r.store.Close(); err != nil && r.store.Err() == nil {
		r.t.Errorf("close: %v", err)
	}
}

// reboot stops the set and starts another one on the same files.
func (r *rig) reboot() {
	r.stop()
	r.open()
	r.start()
}

// until polls ok for up to a minute.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// newPackRig returns a rig with its own folder of packs, with the given files of realPacks.
func newPackRig(t testing.TB, files ...string) (*rig, *Set, string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range files {
		b, err := os.ReadFile(filepath.Join(realPacks, name))
		if err != nil {
			t.Fatal(err)
		}
		putPack(t, filepath.Join(dir, name), b)
	}
	r := &rig{t: t, db: filepath.Join(t.TempDir(), "ronbox.db"), dir: dir, cfg: patientPacks()}
	id, err := store.NewIdentity(time.Now())
	if err = errors.Join(err, store.Create(r.db, id)); err != nil {
		t.Fatal(err)
	}
	r.open()
	t.Cleanup(r.stop)
	return r, r.set, dir
}

// patientPacks returns limits that no sound pack reaches, however busy the machine is. Nothing looks
// at the folder by itself.
func patientPacks() Config {
	c := DefaultConfig()
	c.StatementTimeout, c.VerifyBase = unit.Duration(time.Minute), unit.Duration(time.Hour)
	c.Watch = 0
	return c
}

// putPack installs a pack as recommended: under another name, then renamed.
func putPack(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".part", b, 0o600), os.Rename(path+".part", path)); err != nil {
		t.Fatal(err)
	}
}

// scanned scans the folder and waits until every pack is verified. On a slow disk Rescan may return
// earlier.
func scanned(t testing.TB, s *Set) error {
	t.Helper()
	job := scanJob{how: lookAgain, reply: flow.NewReply[error]()}
	if err := s.jobs.TrySend(job); err != nil {
		return err
	}
	failed, err := job.reply.Wait(t.Context())
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return s.settle(t.Context())
}

// openAll opens the found files like the opener.
func openAll(t testing.TB, s *Set) {
	t.Helper()
	for id := s.current.Load().unopened(); id != ""; id = s.current.Load().unopened() {
		s.open(t.Context(), s.current.Load().packs[id])
	}
}

// verifyAll verifies the open packs like a verifier.
func verifyAll(t testing.TB, s *Set) {
	t.Helper()
	for p := s.current.Load().take(); p != nil; p = s.current.Load().take() {
		s.verify(t.Context(), p, s.current.Load().rows[p.info.File])
	}
}

// openOne opens a pack outside of a set.
func openOne(t testing.TB, path string) *Pack {
	t.Helper()
	info, _ := nameOf(path)
	env := shared{cfg: patientPacks(), slots: pmtiles.NewSlots()}
	p, err := env.open(t.Context(), path, info, 0)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func rescan(t testing.TB, s *Set) []Info {
	t.Helper()
	if err := scanned(t, s); err != nil {
		t.Fatal(err)
	}
	return s.List()
}

// states returns the packs in the form "id state".
func states(all []Info) string {
	var out []string
	for _, i := range all {
		out = append(out, i.ID+" "+string(i.State))
	}
	return strings.Join(out, ", ")
}

// madeTile is a run of tiles from an id.
type madeTile struct {
	id, run uint64
	data    []byte
}

// madePack is a PMTiles file to be written, with one uncompressed directory.
type madePack struct {
	tiles           []madeTile
	coding, maxZoom byte
	bounds          [4]float64
	header          func(b []byte) // changes the header last
}

// compress compresses b in a coding of PMTiles: 2 is gzip, 4 is zstd, 'z' is zlib, others leave b unchanged.
func compress(coding byte, b []byte) []byte {
	var out bytes.Buffer
	var z io.WriteCloser
	switch coding {
	case 2:
		z = gzip.NewWriter(&out)
	case 'z':
		z = zlib.NewWriter(&out)
	case 4:
		z, _ = zstd.NewWriter(&out) // without options there is no error
	default:
		return b
	}
	if _, err := z.Write(b); errors.Join(err, z.Close()) != nil {
		panic("a buffer takes everything")
	}
	return out.Bytes()
}

func (m madePack) bytes() []byte {
	h, n := make([]byte, 127), uint64(len(m.tiles))
	ids, runs, lengths, offsets, data := binary.AppendUvarint(nil, n), []byte{}, []byte{}, []byte{}, []byte{}
	last, addressed := uint64(0), uint64(0)
	for _, t := range m.tiles {
		ids, last = binary.AppendUvarint(ids, t.id-last), t.id
		runs, addressed = binary.AppendUvarint(runs, t.run), addressed+t.run
		lengths = binary.AppendUvarint(lengths, uint64(len(t.data)))
		offsets = binary.AppendUvarint(offsets, uint64(len(data))+1)
		data = append(data, t.data...)
	}
	root := bytes.Join([][]byte{ids, runs, lengths, offsets}, nil)
	copy(h, "PMTiles\x03")
	copy(h[96:], []byte{1, 1, m.coding, 1, 0, m.maxZoom})
	end := 127 + uint64(len(root))
	for i, v := range []uint64{127, uint64(len(root)), end, 0, end, 0, end, uint64(len(data)), addressed, n, n} {
		binary.LittleEndian.PutUint64(h[8+8*i:], v)
	}
	for i, degrees := range m.bounds {
		binary.LittleEndian.PutUint32(h[102+4*i:], uint32(int32(degrees*1e7)))
	}
	if m.header != nil {
		m.header(h)
	}
	return bytes.Join([][]byte{h, root, data}, nil)
}

// made returns a pack of two entries. The first one identifies the pack.
func made(first, second string) madePack {
	return madePack{tiles: []madeTile{{0, 1, []byte(first)}, {1, 2, []byte(second)}}, coding: 1, maxZoom: 2,
		bounds: [4]float64{-180, -85, 180, 85}}
}

// broken is the bytes of a tile that do not decode. A pack with such tiles alone opens and is refused
// by its check.
const broken = "\x1f\x8b\x08\x00broken"

// readPack reads every tile of a pack as it is stored, without the tested readers.
func readPack(t testing.TB, path string) map[TileRef][]byte {
	t.Helper()
	out, id := map[TileRef][]byte{}, strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	if strings.HasSuffix(path, ".mbtiles") {
		c, err := sqlite.OpenConn("file:"+path+"?immutable=1", sqlite.OpenReadOnly|sqlite.OpenURI)
		if err != nil {
			t.Fatal(err)
		}
		err = sqlitex.ExecuteTransient(
			c,
			"SELECT zoom_level, tile_column, (1 << zoom_level) - 1 - tile_row, tile_data FROM tiles",
			&sqlitex.ExecOptions{
				ResultFunc: func(s *sqlite.Stmt) (err error) {
					out[TileRef{
						id, uint8(s.ColumnInt(0)), uint32(s.ColumnInt64(1)), uint32(s.ColumnInt64(2)),
					}], err = io.ReadAll(
						s.ColumnReader(3),
					)
					return err
				},
			},
		)
		if err := errors.Join(err, c.Close()); err != nil {
			t.Fatal(err)
		}
		return out
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	u := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	z, err := gzip.NewReader(bytes.NewReader(b[u(8) : u(8)+u(16)])) // the packs of realPacks have no leaves
	if err != nil {
		t.Fatal(err)
	}
	root, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	number := func() uint64 {
		v, n := binary.Uvarint(root)
		root = root[n:]
		return v
	}
	columns := make([][4]uint64, number())
	for column := range 4 {
		for i := range columns {
			v := number()
			switch {
			case column == 0 && i > 0:
				v += columns[i-1][0]
			case column == 3 && v == 0:
				v = columns[i-1][3] + columns[i-1][2]
			case column == 3:
				v--
			}
			columns[i][column] = v
		}
	}
	for _, e := range columns {
		for n := e[0]; n < e[0]+e[1]; n++ {
			at := hilbert(n)
			at.Pack = id
			out[at] = b[u(56)+e[3] : u(56)+e[3]+e[2]]
		}
	}
	return out
}

// hilbert returns the tile of an id, quadrant by quadrant from the top. For each orientation of the
// curve it has the quadrants, x + 2y, in their order, and the orientation within each.
func hilbert(id uint64) (at TileRef) {
	curve := [4][4][2]uint32{
		{
			{0, 1},
			{2, 0},
			{3, 0},
			{1, 3},
		},
		{{0, 0}, {1, 1}, {3, 1}, {2, 2}},
		{{3, 3}, {1, 2}, {0, 2}, {2, 1}},
		{{3, 2}, {2, 3}, {0, 3}, {1, 0}},
	}
	for level := uint64(1); id >= level; level *= 4 {
		id -= level
		at.Z++
	}
	turn := uint32(0)
	for i := int(at.Z) - 1; i >= 0; i-- {
		step := curve[turn][id>>(2*i)&3]
		at.X, at.Y, turn = at.X<<1|step[0]&1, at.Y<<1|step[0]>>1, step[1]
	}
	return at
}
