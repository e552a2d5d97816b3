package host

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// Level is the severity of a finding.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // the node works but not well, or the fact is unknown
	Bad  Level = "bad"  // the node will not start, or cannot keep its guarantees
)

// Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Seen   string `json:"seen"`
	Advice string `json:"advice,omitempty"` // what to do; "" if the level is ok
}

func ok(check, format string, args ...any) Finding {
	return Finding{Check: check, Level: OK, Seen: fmt.Sprintf(format, args...)}
}

func warn(check, advice, format string, args ...any) Finding {
	return Finding{Check: check, Level: Warn, Seen: fmt.Sprintf(format, args...), Advice: advice}
}

func bad(check, advice, format string, args ...any) Finding {
	return Finding{Check: check, Level: Bad, Seen: fmt.Sprintf(format, args...), Advice: advice}
}

// unknown returns the finding of a check that failed.
func unknown(check string, err error) Finding {
	return warn(check, "look at it by hand, or run doctor as the user of the node", "cannot be told: %v", err)
}

// Inputs are the resources that the node will need.
type Inputs struct {
	DataDir      string
	Private      []string // files that only their owner may read; missing ones are ignored
	Bind         string   // address of the HTTP listener; "" is not checked
	Running      bool     // a node already runs here and holds its port
	MaxBytes     int64    // size limit of the database, in memory with Amnesia
	MinFree      int64    // disk space to keep free
	Held         int64    // disk space that the database uses already
	Heap         int64    // the garbage collector keeps Go's heap below it
	Rows         int64    // memory for the rows of the ledger, beside the heap
	MaxConns     int
	Amnesia      bool
	AllowSwap    bool
	AllowNetwork bool
	ReadOnly     bool // nothing is written: the sync latency is not measured
}

const (
	// syncSamples is enough for a median and takes about a second on a slow disk (30 ms per sync).
	syncSamples = 32
	// syncBudget ends the sampling of a very slow disk early.
	syncBudget = 2 * time.Second
)

// Doctor checks everything that the node depends on. It changes nothing except a temporary file in
// the data directory. It takes some hundred milliseconds, or more on a slow disk.
func Doctor(ctx context.Context, in Inputs) []Finding {
	out := fileChecks(in)
	if in.Bind != "" {
		out = append(out, classifyPort(in, PortFree(ctx, in.Bind)))
	}
	out = append(out, machineChecks(in)...)
	if !in.Amnesia { // with Amnesia the node does not write there
		disk, err := ReadFileSystem(in.DataDir)
		out = append(out, check("disk_space", err, func() Finding { return classifySpace(in, disk) }))
		if !in.ReadOnly {
			out = append(out, checkSync(ctx, in))
		}
	}
	clock, err := ReadClock()
	out = append(out, check("clock", err, func() Finding { return classifyClock(clock) }))
	backlog, err := ReadSoMaxConn()
	return append(out, check("somaxconn", err, func() Finding { return classifyBacklog(backlog) }))
}

// check returns the finding of classify, or an unknown finding if err is not nil.
func check(name string, err error, classify func() Finding) Finding {
	if err != nil {
		return unknown(name, err)
	}
	return classify()
}

// BootChecks returns the findings that are logged at boot. They only read, which takes about a
// millisecond.
func BootChecks(in Inputs) []Finding { return append(fileChecks(in), machineChecks(in)...) }

func fileChecks(in Inputs) []Finding { return []Finding{checkFolder(in), checkPrivate(in)} }

func machineChecks(in Inputs) []Finding {
	kernel, kernelErr := ReadKernel()
	disk, diskErr := ReadFileSystem(in.DataDir)
	areas, swapErr := ReadSwap()
	memory, memoryErr := ReadMemory()
	limits, limitsErr := ReadLimits()
	group, _ := here().group() // on error no group forbids swap, and only the machine bounds memory
	lockable, _ := mayLock()   // on error locking is not relied on
	return []Finding{
		check("file_system", diskErr, func() Finding { return classifyFileSystem(in, disk, kernel) }),
		check("kernel", kernelErr, func() Finding { return classifyKernel(kernel) }),
		check("swap", swapErr, func() Finding { return classifySwap(in, areas, group, lockable) }),
		check("memory", memoryErr, func() Finding { return classifyMemory(in, memory, group) }),
		classifyFiles(in, limits),
		check("cpu", limitsErr, func() Finding { return classifyCPU(limits) }),
	}
}

// checkPrivate checks the permissions of the private files.
func checkPrivate(in Inputs) Finding {
	const check = "private_files"
	var open, advice []string
	for _, path := range in.Private {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			open = append(open, fmt.Sprintf("%s (%04o)", path, info.Mode().Perm()))
			advice = append(advice, path)
		}
	}
	if open == nil {
		return ok(check, "database and keys are closed to others")
	}
	return warn(check, "chmod 600 "+strings.Join(advice, " "), "others may read or write %s", strings.Join(open, ", "))
}

func checkSync(ctx context.Context, in Inputs) Finding {
	ctx, cancel := context.WithTimeout(ctx, syncBudget)
	defer cancel()
	dir, err := existing(in.DataDir)
	if err != nil {
		return unknown("disk_sync", err)
	}
	took, err := SyncLatency(ctx, dir, syncSamples)
	return check("disk_sync", err, func() Finding { return classifySync(took) })
}
