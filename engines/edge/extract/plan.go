package extract

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/appliance/host"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/pmtiles"
)

// format names the form of a plan.
const format = "ronbox.extract/1"

// Names in the folder of an extract.
const (
	folderName = ".extracts" // in the folder of packs
	planName   = "plan.json"
	partName   = "part"   // the bytes that are here
	rangesName = "ranges" // of the source: what follows the head of the part
)

// State is the state of an extract.
type State string

// The states. Only Reading, Done and Failed are kept in a plan.
const (
	Planning State = "planning" // of a dry run
	Reading  State = "reading"  // the task reads it
	Waiting  State = "waiting"  // for another extract, or after a failure
	Checking State = "checking" // all bytes are here
	Done     State = "done"     // it is a pack
	Failed   State = "failed"   // it has no bytes any more
)

// plan describes an extract. The length of its part is its progress.
type plan struct {
	Format   string     `json:"format"`
	Pack     string     `json:"pack"`
	URL      string     `json:"url"` // with its query, which may be a credential
	BBox     [4]float64 `json:"bbox"`
	Region   string     `json:"region,omitzero"` // the b3:… of a GeoJSON region
	Asked    [2]int     `json:"asked"`           // zoom levels of the request
	MinZoom  uint8      `json:"min_zoom"`
	MaxZoom  uint8      `json:"max_zoom"`
	Tiles    uint64     `json:"tiles"`
	Source   int64      `json:"source_bytes"`
	ETag     string     `json:"etag"`
	Head     int64      `json:"head_bytes"` // of the part, before its tiles
	Bytes    int64      `json:"bytes"`      // of the whole part
	Ranges   b3.Digest  `json:"ranges"`     // of the file of ranges
	Added    time.Time  `json:"added"`
	State    State      `json:"state"`
	Fault    string     `json:"fault,omitzero"`
	Refused  bool       `json:"refused,omitzero"` // the pack was made, and would not be served
	Requests int64      `json:"requests"`
	Synced   int64      `json:"synced"` // bytes of the part that are on the disk
	// Boot identifies the start of the system at which Synced was written. Bytes of the part beyond
	// Synced are whole as long as the system runs, and worthless after a power cut.
	Boot string `json:"boot"`
}

// parsePlan parses a plan.
func parsePlan(b []byte) (p plan, err error) {
	if err = json.Unmarshal(b, &p, json.RejectUnknownMembers(true)); err != nil {
		return plan{}, err
	}
	t, _, err := asset.ParseURL(p.URL)
	switch {
	case p.Format != format:
		err = fmt.Errorf("its format is %.40q, not %s", p.Format, format)
	case err != nil || t.URL != p.URL:
		err = errors.New("its URL is not that of an asset")
	case p.State != Reading && p.State != Done && p.State != Failed:
		err = fmt.Errorf("its state is %.40q", p.State)
	case p.Head <= 0 || p.Bytes <= p.Head || p.Synced < 0 || p.Synced > p.Bytes || p.Source <= 0 || p.Requests < 0:
		err = fmt.Errorf("its sizes are %d of %d bytes, %d synced, of %d", p.Head, p.Bytes, p.Synced, p.Source)
	}
	return p, err
}

// same reports whether two plans are of the same request.
func (p plan) same(o plan) bool {
	return p.Pack == o.Pack && p.URL == o.URL && p.BBox == o.BBox && p.Region == o.Region && p.Asked == o.Asked
}

// file is the name of the pack's file.
func (p plan) file() string { return p.Pack + "." + string(pack.PMTiles) }

// folder is the folder of one extract.
type folder string

func (f folder) path(name string) string { return filepath.Join(string(f), name) }

// write writes the plan, with mode 0600.
func (f folder) write(p plan) error {
	return host.ReplaceFile(f.path(planName), 0o600, func(w io.Writer) error { return json.MarshalWrite(w, p) })
}

// read reads the plan.
func (f folder) read() (plan, error) {
	b, err := os.ReadFile(f.path(planName))
	if err != nil {
		return plan{}, err
	}
	p, err := parsePlan(b)
	if err == nil && p.Pack != filepath.Base(string(f)) {
		err = fmt.Errorf("it is of %.80q", p.Pack)
	}
	return p, err
}

// create makes the folder of a new extract, with the head of its part and the ranges of its source.
// The plan comes last: a folder without one is removed at the next start. It calls synced after
// each sync.
func (f folder) create(p plan, part *pmtiles.Part, synced func()) (plan, error) {
	err := errors.Join(os.RemoveAll(string(f)), os.MkdirAll(string(f), 0o700))
	if err != nil {
		return p, err
	}
	ranges := encodeRanges(part.Ranges)
	p.Format, p.State, p.Ranges = format, Reading, b3.Sum(ranges)
	p.Head, p.Bytes, p.Synced, p.Boot = int64(len(part.Head)), part.Size, int64(len(part.Head)), bootID()
	write := func(name string, b []byte) error {
		return host.ReplaceFile(f.path(name), 0o600, func(w io.Writer) error { _, err := w.Write(b); return err })
	}
	for _, step := range []func() error{
		func() error { return write(partName, part.Head) },
		func() error { return write(rangesName, ranges) },
		func() error { return f.write(p) },
		func() error { return host.SyncDir(filepath.Dir(string(f))) },
	} {
		if err := step(); err != nil {
			return p, errors.Join(err, os.RemoveAll(string(f)))
		}
		synced()
	}
	return p, nil
}

// clear removes what an extract needs no more once it is done or has failed.
func (f folder) clear() error {
	var errs []error
	for _, name := range []string{partName, rangesName} {
		if err := os.Remove(f.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ranges reads the ranges of the source.
func (f folder) ranges(p plan) ([]pmtiles.Section, error) {
	b, err := os.ReadFile(f.path(rangesName))
	if errors.Is(err, fs.ErrNotExist) || err == nil && b3.Sum(b) != p.Ranges {
		return nil, errDamaged
	}
	if err != nil {
		return nil, err
	}
	return decodeRanges(b), nil
}

// encodeRanges writes each range as its distance from the end of the one before, and its length.
func encodeRanges(all []pmtiles.Section) (b []byte) {
	end := uint64(0)
	for _, s := range all {
		b = binary.AppendVarint(b, int64(s.Offset-end))
		b = binary.AppendUvarint(b, s.Length)
		end = s.Offset + s.Length
	}
	return b
}

// decodeRanges reads what encodeRanges has written.
func decodeRanges(b []byte) (all []pmtiles.Section) {
	for end := uint64(0); len(b) > 0; {
		gap, n := binary.Varint(b)
		length, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 {
			return all
		}
		s := pmtiles.Section{Offset: end + uint64(gap), Length: length}
		all, end, b = append(all, s), s.Offset+s.Length, b[n+m:]
	}
	return all
}

// bootID identifies the start of the system, or is "" if that is unknown.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}
