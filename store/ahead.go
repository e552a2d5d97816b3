package store

import (
	"os"

	"golang.org/x/sys/unix"
)

const (
	aheadStep = 512 << 10     // bytes filled at a time
	aheadLow  = aheadStep / 4 // what has to be left of them before a commit; one that grows the file by more has a long sync anyway
)

// ahead fills the holes behind the last page with zeros before pages are put there. The file grows by a truncate, so the first write to a
// page has a block allotted, and the sync of its commit waits for the file system's journal too: on ext4 that takes more than half as long
// again. Filled ahead, many pages at a time, most commits write to blocks that are there. It is the committer's.
type ahead struct {
	file *os.File // nil: nothing is gained
	size int64    // where the pages ended before the last group
	end  int64    // up to where blocks are known to be there
}

// newAhead serves a file whose file system writes in place, from the last page on.
func newAhead(f *os.File, size int64) ahead {
	var fs unix.Statfs_t
	if onFile(f, func(fd int) error { return unix.Fstatfs(fd, &fs) }) != nil || !inPlace(int64(fs.Type)&0xFFFFFFFF) {
		return ahead{}
	}
	return ahead{file: f, size: size, end: size}
}

// inPlace tells whether a file system, by number, keeps writing to a block once it is allotted: ext4 and XFS do, those that copy on write
// would write the zeros for nothing.
func inPlace(magic int64) bool { return magic == ext4 || magic == 0x58465342 }

// step looks at where the pages end before a group, and fills what is about to be used. No meta page refers to what is filled: it lies
// behind the last page of the newest one. It never makes the file longer. What cannot be written is left to the commit, which will tell.
func (a *ahead) step(size int64) {
	grown := size - a.size
	a.size = size
	if a.file == nil || grown <= 0 || a.end-size >= aheadLow {
		return
	}
	a.end = max(a.end, size)
	if grown > aheadLow {
		return
	}
	info, err := a.file.Stat()
	if err != nil {
		return
	}
	// Page by page, as they will be written: a longer write makes a large folio of them in the page cache, and the kernel would count and
	// look through the whole of it for every page that is put there later.
	var zeros [PageSize]byte
	for to := min(a.end+aheadStep, info.Size()); a.end+PageSize <= to; a.end += PageSize {
		if _, err := a.file.WriteAt(zeros[:], a.end); err != nil {
			return
		}
	}
}
