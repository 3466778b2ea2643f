package adopters

import (
	_ "github.com/centrifugal/centrifuge"
	_ "github.com/cloudwego/netpoll"
	_ "github.com/panjf2000/gnet/v2"
	_ "k8s.io/client-go/util/workqueue"
)
