// RUN: %exla-opt %s --passes=rce | filecheck %s

// Sorts that only look like top_k.

// CHECK-NOT: top_k
// CHECK-COUNT-9: stablehlo.sort
// CHECK-NOT: top_k

func.func @main(%x: tensor<4x37xf32>) -> (tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x3xf32>, tensor<4x4xi32>, tensor<2x3xf32>, tensor<2x3xi32>, tensor<4x13xf32>, tensor<4x13xi32>) {
  %rows = stablehlo.iota dim = 0 : tensor<4x37xi32>
  %places = stablehlo.iota dim = 1 : tensor<4x37xi32>
  // The smallest few: top_k takes the largest.
  %rising:2 = "stablehlo.sort"(%x, %places) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %before = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }) : (tensor<4x37xf32>, tensor<4x37xi32>) -> (tensor<4x37xf32>, tensor<4x37xi32>)
  %0 = stablehlo.slice %rising#0 [0:4, 0:3] : (tensor<4x37xf32>) -> tensor<4x3xf32>
  %1 = stablehlo.slice %rising#1 [0:4, 0:3] : (tensor<4x37xi32>) -> tensor<4x3xi32>
  // Equal elements in any order.
  %unstable:2 = "stablehlo.sort"(%x, %places) <{dimension = 1 : i64, is_stable = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %before = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }) : (tensor<4x37xf32>, tensor<4x37xi32>) -> (tensor<4x37xf32>, tensor<4x37xi32>)
  %2 = stablehlo.slice %unstable#0 [0:4, 0:3] : (tensor<4x37xf32>) -> tensor<4x3xf32>
  %3 = stablehlo.slice %unstable#1 [0:4, 0:3] : (tensor<4x37xi32>) -> tensor<4x3xi32>
  // A NaN is neither before nor behind another number.
  %partial:2 = "stablehlo.sort"(%x, %places) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %before = stablehlo.compare GT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }) : (tensor<4x37xf32>, tensor<4x37xi32>) -> (tensor<4x37xf32>, tensor<4x37xi32>)
  %4 = stablehlo.slice %partial#0 [0:4, 0:3] : (tensor<4x37xf32>) -> tensor<4x3xf32>
  %5 = stablehlo.slice %partial#1 [0:4, 0:3] : (tensor<4x37xi32>) -> tensor<4x3xi32>
  // The other order of operands.
  %turned:2 = "stablehlo.sort"(%x, %places) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %before = stablehlo.compare GT, %b, %a, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }) : (tensor<4x37xf32>, tensor<4x37xi32>) -> (tensor<4x37xf32>, tensor<4x37xi32>)
  %6 = stablehlo.slice %turned#0 [0:4, 0:3] : (tensor<4x37xf32>) -> tensor<4x3xf32>
  %7 = stablehlo.slice %turned#1 [0:4, 0:3] : (tensor<4x37xi32>) -> tensor<4x3xi32>
  // Places along another dimension than the sorted one.
  %columns:2 = "stablehlo.sort"(%x, %rows) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %before = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }) : (tensor<4x37xf32>, tensor<4x37xi32>) -> (tensor<4x37xf32>, tensor<4x37xi32>)
  %8 = stablehlo.slice %columns#0 [0:4, 0:3] : (tensor<4x37xf32>) -> tensor<4x3xf32>
  %9 = stablehlo.slice %columns#1 [0:4, 0:3] : (tensor<4x37xi32>) -> tensor<4x3xi32>
  // Not the first elements.
  %last:2 = "stablehlo.sort"(%x, %places) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %before = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }) : (tensor<4x37xf32>, tensor<4x37xi32>) -> (tensor<4x37xf32>, tensor<4x37xi32>)
  %10 = stablehlo.slice %last#0 [0:4, 34:37] : (tensor<4x37xf32>) -> tensor<4x3xf32>
  %11 = stablehlo.slice %last#1 [0:4, 34:37] : (tensor<4x37xi32>) -> tensor<4x3xi32>
  // Two lengths: the sort is needed for one of them anyway.
  %two:2 = "stablehlo.sort"(%x, %places) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %before = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }) : (tensor<4x37xf32>, tensor<4x37xi32>) -> (tensor<4x37xf32>, tensor<4x37xi32>)
  %12 = stablehlo.slice %two#0 [0:4, 0:3] : (tensor<4x37xf32>) -> tensor<4x3xf32>
  %13 = stablehlo.slice %two#1 [0:4, 0:4] : (tensor<4x37xi32>) -> tensor<4x4xi32>
  // Some rows only.
  %half:2 = "stablehlo.sort"(%x, %places) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %before = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }) : (tensor<4x37xf32>, tensor<4x37xi32>) -> (tensor<4x37xf32>, tensor<4x37xi32>)
  %14 = stablehlo.slice %half#0 [0:2, 0:3] : (tensor<4x37xf32>) -> tensor<2x3xf32>
  %15 = stablehlo.slice %half#1 [0:2, 0:3] : (tensor<4x37xi32>) -> tensor<2x3xi32>
  // A third of the row.
  %many:2 = "stablehlo.sort"(%x, %places) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %before = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }) : (tensor<4x37xf32>, tensor<4x37xi32>) -> (tensor<4x37xf32>, tensor<4x37xi32>)
  %16 = stablehlo.slice %many#0 [0:4, 0:13] : (tensor<4x37xf32>) -> tensor<4x13xf32>
  %17 = stablehlo.slice %many#1 [0:4, 0:13] : (tensor<4x37xi32>) -> tensor<4x13xi32>
  return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17 : tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x3xf32>, tensor<4x3xi32>, tensor<4x3xf32>, tensor<4x4xi32>, tensor<2x3xf32>, tensor<2x3xi32>, tensor<4x13xf32>, tensor<4x13xi32>
}
