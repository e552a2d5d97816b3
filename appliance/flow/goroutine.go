//go:build flowdebug || flowsched

package flow

import (
	"bytes"
	"runtime"
	"strconv"
)

// goroutine returns the id of the calling goroutine. The runtime shows it only in a stack trace:
// "goroutine 7 [running]:".
func goroutine() uint64 {
	var buf [40]byte
	head := buf[:runtime.Stack(buf[:], false)]
	fields := bytes.Fields(head)
	id, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		panic("flow: no goroutine id in " + string(head))
	}
	return id
}
