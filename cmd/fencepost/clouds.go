package main

import (
	_ "github.com/fencepost/fencepost/store/azurestore" // az://
	_ "github.com/fencepost/fencepost/store/gcsstore"   // gs://
)
