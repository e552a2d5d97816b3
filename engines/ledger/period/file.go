package period

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"ronbox/appliance/b3"
	"ronbox/appliance/host"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// partial is the end of the name of a file that is not complete.
const partial = ".partial"

// periodWindow bounds the memory of a decoder in bytes: no file of a period needs more.
const periodWindow = 64 << 20

// DiffersError is returned when there is a file with other content at the path of a period's file:
// of another node, or of another history.
type DiffersError struct{ Path string }

func (e *DiffersError) Error() string { return e.Path + " exists and has other content" }

// sums are what is known of a file.
type sums struct {
	file, content b3.Digest
	bytes         uint64
}

// write writes the file of the closing under another name, and syncs it. The folder must be there,
// unless it is to be made: one that is not mounted would be made on another disk.
func write(ctx context.Context, x *exporter, path string, make bool) (s sums, err error) {
	if dir := filepath.Dir(path); make {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return s, err
		}
		if err := host.SyncDir(filepath.Dir(dir)); err != nil {
			return s, err
		}
	}
	if err := os.Remove(path + partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	f, err := os.OpenFile(path+partial, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return s, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(path + partial)
		}
	}()
	s, err = compress(ctx, x, f)
	if err == nil {
		err = onDisk(f)
	}
	return s, errors.Join(err, f.Close())
}

// onDisk syncs a file, and has the next read ask the disk.
func onDisk(f *os.File) error {
	if err := f.Sync(); err != nil {
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// compress writes the lines of x as one zstd frame.
func compress(ctx context.Context, x *exporter, f io.Writer) (s sums, err error) {
	file, content := b3.New(), b3.New()
	size := new(counter)
	z, err := zstd.NewWriter(io.MultiWriter(f, file, size), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return s, err
	}
	x.w = io.MultiWriter(z, content)
	err = errors.Join(x.export(ctx), z.Close())
	return sums{file.Sum32(), content.Sum32(), uint64(*size)}, err
}

// counter counts bytes.
type counter uint64

// Write counts the bytes of p.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// readBack reads a file.
func readBack(ctx context.Context, path string) (s sums, err error) {
	f, err := os.Open(path)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := onDisk(f); err != nil {
		return s, err
	}
	file, content := b3.New(), b3.New()
	size := new(counter)
	in := io.TeeReader(reader{ctx, f}, io.MultiWriter(file, size))
	z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(periodWindow))
	if err != nil {
		return s, err
	}
	defer z.Close()
	if _, err := io.Copy(content, z); err != nil {
		return s, err
	}
	_, err = io.Copy(io.Discard, in) // what is behind the frame counts for the sum of the file
	return sums{file.Sum32(), content.Sum32(), uint64(*size)}, err
}

// place gives the checked file its name, unless there is a file with the same content. A file with
// other content stays, with a DiffersError.
func place(ctx context.Context, path string, want sums) (sums, error) {
	err := host.PlaceFile(path+partial, path)
	if errors.Is(err, fs.ErrExist) {
		have, err := readBack(ctx, path)
		if ctx.Err() != nil {
			return have, context.Cause(ctx)
		}
		if err != nil || have.content != want.content {
			return have, &DiffersError{path}
		}
		return have, errors.Join(os.Remove(path+partial), host.SyncDir(filepath.Dir(path)))
	}
	return want, err
}

// mayBe returns a DiffersError if there is a file at path that is not of the period with an
// opening. Whether it has the same records shows when they are written.
func mayBe(path string, opening record.PeriodOpening) error {
	f, err := os.Open(path)
	if err != nil {
		return nil // there is none, or the closing fails for the same reason
	}
	defer func() { _ = f.Close() }() // only read
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(periodWindow))
	if err != nil {
		return err
	}
	defer z.Close()
	line, _ := bufio.NewReaderSize(z, record.MaxPeriodLine).ReadSlice('\n')
	l, err := record.ParsePeriodLine(bytes.TrimSuffix(line, []byte("\n")))
	if err != nil || l.Kind != record.LinePeriod || l.Opening != opening {
		return &DiffersError{path}
	}
	return nil
}

// writable adds to the error of a folder on a file system that is read-only what lets the node
// write there.
func writable(err error, dir string) error {
	if errors.Is(err, unix.EROFS) {
		return fmt.Errorf("%w; under systemd add the line ReadWritePaths=%s to the unit, else mount it for writing",
			err, dir)
	}
	return err
}

// note adds what is known of the file to the closing.
func (s sums) note(c *tables.Closing) {
	c.File.FileB3, c.File.ContentB3, c.File.Bytes = s.file, s.content, s.bytes
}

// inDir returns the path of the file of a closing. One that goes into the folder for such files,
// dir, has only the name of the file: another leader of a cluster has another folder. No file stays
// no file.
func inDir(dir, file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}

// discard removes from the disk what a closing has left that was canceled: the file under its other
// name, and the file itself if this node has placed it. A restored node leaves the file, which that
// of before may have closed its period with. The removal is on the disk before the row of the
// closing goes.
func discard(s *store.Store, c *tables.Closing) {
	path := c.File.File
	_ = os.Remove(path + partial)
	info, err := os.Stat(path)
	if err == nil && c.Placed == s.Info().Incarnation && uint64(info.Size()) == c.File.Bytes {
		_ = errors.Join(os.Remove(path), host.SyncDir(filepath.Dir(path)))
	}
}

// reader reads until its context ends: a whole file takes long.
type reader struct {
	ctx context.Context
	in  io.Reader
}

// Read implements io.Reader.
func (r reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.in.Read(p)
}
