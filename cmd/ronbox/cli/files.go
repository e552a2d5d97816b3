package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// WriteFile atomically creates a file through a temporary one. It never replaces a file.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	_, err := ProduceFile(path, mode, writerOf(data))
	return err
}

// ProduceFile is WriteFile for streamed data: write fills the temporary file. It returns the size.
func ProduceFile(path string, mode os.FileMode, write func(io.Writer) error) (int64, error) {
	if _, err := os.Lstat(path); err == nil {
		return 0, Fail(ExitFailed, "exists", "choose another path or move the old file away", "%s exists", path)
	}
	var bytes counter
	// unlike a rename, a link fails if the file was created meanwhile
	err := writeThrough(path, mode, func(w io.Writer) error { return write(io.MultiWriter(w, &bytes)) }, os.Link)
	return int64(bytes), err
}

// counter counts the bytes written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// ReplaceFile is WriteFile, but replaces an existing file.
func ReplaceFile(path string, data []byte, mode os.FileMode) error {
	return writeThrough(path, mode, writerOf(data), os.Rename)
}

func writerOf(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// writeThrough fills a temporary file beside path and puts it in place. A failure leaves no file.
func writeThrough(
	path string,
	mode os.FileMode,
	write func(io.Writer) error,
	place func(tmp, path string) error,
) error {
	dir, _ := filepath.Split(path) // unlike Dir, it does not resolve ".."
	if dir == "" {
		dir = "."
	}
	tmp, err := os.CreateTemp(dir, ".ronbox-*")
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("write %s: %w", path, p.Err)
	}
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // already renamed on success
	if err := fill(tmp, mode, write); err != nil {
		return writeError(path, tmp.Name(), err)
	}
	return writeError(path, tmp.Name(), place(tmp.Name(), path))
}

// writeError replaces the name of the temporary file in err by path.
func writeError(path, tmp string, err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok && p.Path == tmp {
		return fmt.Errorf("write %s: %w", path, p.Err)
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok && l.Old == tmp {
		return fmt.Errorf("write %s: %w", path, l.Err)
	}
	return err
}

func fill(f *os.File, mode os.FileMode, write func(io.Writer) error) error {
	defer func() { _ = f.Close() }() // a second close after the checked one does nothing
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

// ReadInput reads a file, or stdin for "-".
func (a *App) ReadInput(path string, limit int64) ([]byte, error) {
	if path != "-" {
		return ReadFile(path, limit)
	}
	return readAll("stdin", a.Stdin, limit)
}

// ReadFile reads a whole file of at most limit bytes.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return readAll(path, f, limit)
}

func readAll(name string, r io.Reader, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, ReadError(name, err)
	}
	if int64(len(raw)) > limit {
		return nil, Fail(ExitFailed, "too_large", "", "%s is larger than %s", name, Bytes(limit))
	}
	return raw, nil
}

// ReadError adds the name of the file to err, unless err contains it.
func ReadError(name string, err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	return fmt.Errorf("read %s: %w", name, err)
}

// Exists reports whether there is a file at path.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// stdinPollMS is the interval at which a read of stdin checks for Ctrl-C.
const stdinPollMS = 50

// interruptible makes reads of stdin end when ctx ends. A read of a terminal or a pipe cannot be
// cancelled, so it starts only when data is available.
func interruptible(ctx context.Context, stdin io.Reader) io.Reader {
	if f, ok := stdin.(*os.File); ok {
		return &interruptibleFile{f, ctx}
	}
	return stdin
}

// interruptibleFile is the stdin of one verb.
type interruptibleFile struct {
	*os.File
	ctx context.Context // of the verb
}

// Read implements io.Reader.
func (h *interruptibleFile) Read(p []byte) (int, error) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(h.Fd()), Events: unix.POLLIN}}, stdinPollMS)
		switch {
		case h.ctx.Err() != nil:
			return 0, context.Cause(h.ctx)
		case err != nil && !errors.Is(err, unix.EINTR):
			return 0, &os.PathError{Op: "poll", Path: h.Name(), Err: err}
		case n > 0:
			return h.File.Read(p)
		}
	}
}
