package lab

import (
	"strconv"

	"github.com/kvscope/kvscope/wire"
)

// replicaName names the replica with this number, from 0.
func replicaName(n int) wire.Replica { return wire.Replica("r" + strconv.Itoa(n)) }
