package history

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/host"
	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
)

// Errors of RestorePeriods.
var (
	ErrNoPeriod  = errors.New("archive: it has no such period")
	ErrHistories = errors.New("archive: its periods are of several histories")
)

// Copy is a copy of the file of a closed period, perhaps an incomplete one. A period has more than
// one if a closing was ended and a later one had other records, or if the node was restored.
type Copy struct {
	Node  string
	N     uint64 // of the period
	ID    string // begin of the sum of the file
	Parts []Part // by number
}

// Bytes returns the size of the objects.
func (c *Copy) Bytes() (n int64) {
	for _, p := range c.Parts {
		n += p.Bytes
	}
	return n
}

// Newest returns when the newest part was created.
func (c *Copy) Newest() time.Time { return (&Base{Parts: c.Parts}).Newest() }

var copyIDs = regexp.MustCompile(`^[0-9a-f]{16}$`)

// addPeriod adds a part of the file of a period. It reports false if no node can have made its
// name.
func (a *Archive) addPeriod(s []string, i target.Item) bool {
	n, err := strconv.ParseUint(s[2], 10, 64)
	if err != nil || n == 0 || fmt.Sprintf("%06d", n) != s[2] || !ids.MatchString(s[0]) || !copyIDs.MatchString(s[3]) {
		return false
	}
	number, err := partNumber(s[4])
	if err != nil {
		return false
	}
	if last := len(a.Periods) - 1; last < 0 || !a.Periods[last].is(s[0], n, s[3]) {
		a.Periods = append(a.Periods, &Copy{Node: s[0], N: n, ID: s[3]})
	}
	c := a.Periods[len(a.Periods)-1] // names come in order
	c.Parts = append(c.Parts, Part{number, i})
	return true
}

func (c *Copy) is(node string, n uint64, id string) bool {
	return c.Node == node && c.N == n && c.ID == id
}

// Held is a complete copy of the file of a closed period.
type Held struct {
	Copy              *Copy
	Signer            string // of the first part, as its header says
	object.FileHeader        // of the first part
}

// Whole returns a copy if all of its parts are there, by the header of the first part.
func (a *Archive) Whole(ctx context.Context, c *Copy) (_ Held, whole bool, err error) {
	for i, p := range c.Parts {
		if p.Number != i {
			return Held{}, false, nil
		}
	}
	h, err := a.logHeader(ctx, c.Parts[0].Name)
	if err != nil {
		return Held{}, false, err
	}
	return Held{c, h.Signer, *h.File}, h.File.Parts() == len(c.Parts), nil
}

// HistoriesError is returned if periods of an archive do not all follow one another. It is
// ErrHistories.
type HistoriesError struct{ Heads []Held } // the last period of each history

func (e *HistoriesError) Error() string {
	var text []string
	for _, h := range e.Heads {
		text = append(text, fmt.Sprintf("period %d with statement %s", h.Period, h.Statement))
	}
	return fmt.Sprintf("%v, which end with %s", ErrHistories, strings.Join(text, ", and "))
}

// Is reports whether target is ErrHistories.
func (e *HistoriesError) Is(target error) bool { return target == ErrHistories }

// RestoredPeriod is the file of a closed period that was restored.
type RestoredPeriod struct {
	Period    uint64    `json:"period"`
	File      string    `json:"file"`
	Bytes     int64     `json:"bytes"`
	B3        b3.Digest `json:"b3"`
	Statement b3.Digest `json:"statement"`
}

// PeriodsOf are the options of RestorePeriods.
type PeriodsOf struct {
	Statement b3.Digest             // digest of the last one; zero: the last one that the archive has
	Name      func(n uint64) string // name of the file of a period
	Signers   []string              // keys of which one must have signed; none: they are not compared
	Options
}

// RestoredPeriods are the files of closed periods that were restored.
type RestoredPeriods struct {
	Node    string
	Signers []string         // keys that have signed the parts
	Files   []RestoredPeriod // newest first
	Missing []Gap            // periods up to the last one of which the archive has no complete copy
	Cut     uint64           // a later period with an incomplete copy only, or 0
}

// Gap is a run of periods that are missing.
type Gap struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

func (g Gap) String() string {
	if g.First == g.Last {
		return fmt.Sprintf("period %d", g.First)
	}
	return fmt.Sprintf("periods %d to %d", g.First, g.Last)
}

// RestorePeriods writes the files of closed periods into dir: those that lead to a statement. A
// file that is there stays, and must be the same. It returns a NodesError, a HistoriesError,
// ErrNoPeriod, or an ObjectError for an object that is damaged or that another key has signed.
func (a *Archive) RestorePeriods(ctx context.Context, dir string, of PeriodsOf) (out RestoredPeriods, err error) {
	if nodes := a.Nodes(); len(nodes) > 1 {
		return out, &NodesError{nodes}
	}
	chain, missing, err := a.chain(ctx, of.Statement)
	if err != nil {
		return out, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return out, err
	}
	out.Node, out.Missing = chain[0].Copy.Node, missing
	for _, h := range chain {
		if err := out.signed(of, h.Copy.Parts[0].Name, h.Signer); err != nil {
			return out, err
		}
	}
	for _, h := range chain {
		path := filepath.Join(dir, of.Name(h.Period))
		if err := a.restorePeriod(ctx, path, h, of, &out); err != nil {
			return out, err
		}
		out.Files = append(out.Files, RestoredPeriod{h.Period, path, h.Bytes, h.B3, h.Statement})
	}
	if last := a.Periods[len(a.Periods)-1].N; of.Statement.IsZero() && last > chain[0].Period {
		out.Cut = last
	}
	return out, nil
}

// signed adds the signer of an object to the list. It returns ErrSigner unless of permits it.
func (out *RestoredPeriods) signed(of PeriodsOf, name, signer string) error {
	if len(of.Signers) > 0 && !slices.Contains(of.Signers, signer) {
		return &ObjectError{name, fmt.Errorf("%w: %s", ErrSigner, signer)}
	}
	if !slices.Contains(out.Signers, signer) {
		out.Signers = append(out.Signers, signer)
	}
	return nil
}

// restorePeriod writes the file of a period, unless it is there.
func (a *Archive) restorePeriod(ctx context.Context, path string, h Held, of PeriodsOf, out *RestoredPeriods) error {
	if err := compare(path, h.B3); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+partial) // mode 0600
	if err != nil {
		return err
	}
	err = a.writePeriod(ctx, f, h, of, out)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = host.PlaceFile(f.Name(), path)
	}
	switch {
	case errors.Is(err, fs.ErrExist): // another restore has written it since
		return errors.Join(compare(path, h.B3), os.Remove(f.Name()))
	case err != nil:
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// compare returns fs.ErrExist if a file has another sum.
func compare(path string, sum b3.Digest) error {
	there, err := sumOf(path)
	if err == nil && there != sum {
		err = fmt.Errorf("%w with other content: %s", fs.ErrExist, path)
	}
	return err
}

// writePeriod writes the parts of a file to w, and compares them with its sum.
func (a *Archive) writePeriod(ctx context.Context, w io.Writer, h Held, of PeriodsOf, out *RestoredPeriods) error {
	items := make([]target.Item, len(h.Copy.Parts))
	for i, p := range h.Copy.Parts {
		items[i] = p.Item
	}
	hash := b3.New()
	r := &run{a: a, o: of.Options}
	err := r.each(ctx, items, fmt.Sprintf("period %d", h.Period), func(part opened) error {
		if !part.File.SameFile(h.FileHeader) {
			return &ObjectError{part.name, fmt.Errorf("%w: it is of another file", object.ErrDamaged)}
		}
		if err := out.signed(of, part.name, part.Signer); err != nil {
			return err
		}
		_, _ = hash.Write(part.plain) // never fails
		_, err := w.Write(part.plain)
		return err
	})
	if err == nil && hash.Sum32() != h.B3 {
		err = &ObjectError{items[0].Name, fmt.Errorf("%w: its parts are not the file", object.ErrDamaged)}
	}
	return err
}

// sumOf returns the sum of a file.
func sumOf(path string) (sum b3.Digest, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	hash := b3.New()
	_, err = io.Copy(hash, f)
	return hash.Sum32(), errors.Join(err, f.Close())
}
