package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// The format of a segment of raft-wal: a header, then frames. Each frame has a header of a type and
// a length, and is padded to a multiple of frameSize. A batch of entries ends with a commit frame,
// which has a checksum instead of a length.
const (
	segmentHeader = 32
	frameSize     = 8

	frameEntry  = 1
	frameIndex  = 2 // the segment is full: it is sealed once the batch is committed
	frameCommit = 3
)

// tailBlock is the number of bytes that are read and cleared at a time.
const tailBlock = 64 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// tailEnd is the place after a committed batch of the last segment.
type tailEnd struct {
	offset  int64
	entries uint64 // of the segment
	index   int64  // of the offsets of all entries; 0: the segment is not sealed
}

// mendTail prepares the last segment of the log in dir for raft-wal v0.4.2, which has two faults.
// After a stop between the last batch of a segment and the record that the segment is full, it
// refuses all further entries. And it does not clear the rest of a batch that was not committed: a
// later boot may take the rest for entries, after those that were stored in between.
//
// mendTail records that a full segment is sealed, and clears all that follows the last batch that
// raft-wal accepts. A power cut at any moment leaves a log that mendTail mends again. It does not
// change a log that ends before the place of the file: the log is damaged, or will be emptied.
func mendTail(dir string, place uint64) (err error) {
	_, err = os.Stat(filepath.Join(dir, metadb.FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // raft-wal creates it
	}
	meta := &metadb.BoltMetaDB{}
	state, err := meta.Load(dir)
	defer func() { err = errors.Join(err, meta.Close()) }()
	if err != nil || len(state.Segments) == 0 {
		return err
	}
	tail := &state.Segments[len(state.Segments)-1]
	if !tail.SealTime.IsZero() {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(dir, segment.FileName(*tail)), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // raft-wal creates it
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	end, err := readTail(f)
	last := tail.BaseIndex + end.entries - 1
	if err != nil || last < place {
		return err
	}
	if err = clearAfter(f, end.offset); err != nil || end.index == 0 {
		return err
	}
	tail.SealTime, tail.IndexStart, tail.MaxIndex = time.Now(), uint64(end.index), last
	state.Segments = append(state.Segments, types.SegmentInfo{
		ID: state.NextSegmentID, BaseIndex: last + 1, MinIndex: last + 1, SizeLimit: tail.SizeLimit,
		Codec: tail.Codec, CreateTime: time.Now(),
	})
	state.NextSegmentID++
	return meta.CommitState(state)
}

// readTail returns the end of the last batch that raft-wal accepts. As raft-wal does, it accepts a
// commit without a check if entries follow it: a batch is synced before the next one is written.
func readTail(r io.ReaderAt) (end tailEnd, err error) {
	var before, last tailEnd // before the last commit frame, and after it
	var sum uint32
	at := tailEnd{offset: segmentHeader}
	for header := (make([]byte, frameSize)); ; {
		n, err := r.ReadAt(header, at.offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return end, err
		}
		size := binary.LittleEndian.Uint32(header[4:])
		kind := header[0]
		if n < frameSize || kind < frameEntry || kind > frameCommit {
			break // the end, or a batch that was not written completely
		}
		if kind == frameEntry {
			at.entries++
		}
		if kind == frameIndex {
			at.index = at.offset + frameSize
		}
		at.offset += frameSize
		if kind == frameCommit {
			before, last, sum = last, at, size
		} else {
			at.offset += (int64(size) + frameSize - 1) &^ (frameSize - 1)
		}
	}
	if last.offset == 0 || at.entries > last.entries {
		return last, nil
	}
	batch := crc32.New(castagnoli)
	length := last.offset - frameSize - before.offset
	if _, err = io.Copy(batch, io.NewSectionReader(r, before.offset, length)); err == nil && batch.Sum32() != sum {
		return before, nil
	}
	return last, err
}

// clearAfter overwrites all that is not zero after an offset.
func clearAfter(f *os.File, offset int64) error {
	block, zeros := make([]byte, tailBlock), make([]byte, tailBlock)
	cleared := false
	for {
		n, err := f.ReadAt(block, offset)
		if n > 0 && !bytes.Equal(block[:n], zeros[:n]) {
			cleared = true
			if _, err := f.WriteAt(zeros[:n], offset); err != nil {
				return err
			}
		}
		offset += int64(n)
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return err
		case cleared:
			return f.Sync()
		default:
			return nil
		}
	}
}
