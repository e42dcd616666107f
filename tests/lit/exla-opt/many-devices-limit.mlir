// RUN: %exla-opt %s --memory-limit=1.5MB -o %t 2>&1 | filecheck %s
// RUN: %exla-run %t --compare %s 2>&1 | filecheck %s --check-prefix=RAN
// RUN: %exla-opt %s --memory-limit=17MB -o - 2>/dev/null | filecheck %s --check-prefix=LEFT
// RUN: %exla-opt %s --diagnose | filecheck %s --check-prefix=DIAGNOSE

// The four nearest of points that are spread over the devices. Each device finds the best of its own points, without a split.
// XLA gathers all distances instead: so the program of one device is written where the original does not fit, and only there.

// CHECK: remark: fits into 1.5MB, without a split: 1.14MB
// CHECK-NEXT: note: written as a program of one device: spread by XLA, the original needs 16.9MB on each

// RAN: sent 65.5KB 8.39MB
// RAN: PASSED

// DIAGNOSE: peak 1.14MB on each of 8 devices
// DIAGNOSE: this is the program of one device; spread by XLA, the original needs 16.9MB on each of 8 devices

// LEFT-NOT: sdy.manual_computation

module attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["d"=8]>
  func.func @main(%points: tensor<8192x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}, %queries: tensor<256x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> (tensor<256x4xf32>, tensor<256x4xi32>) {
    %0 = stablehlo.dot_general %queries, %points, contracting_dims = [1] x [1] : (tensor<256x16xf32>, tensor<8192x16xf32>) -> tensor<256x8192xf32>
    %1:2 = chlo.top_k(%0, k = 4) : tensor<256x8192xf32> -> (tensor<256x4xf32>, tensor<256x4xi32>)
    return %1#0, %1#1 : tensor<256x4xf32>, tensor<256x4xi32>
  }
}
