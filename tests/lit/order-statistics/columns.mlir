// RUN: %exla-opt %s --passes=normalise,order-statistics --size-threshold=4KB --split-size=1KB | filecheck %s

// Each column by itself: a key for each. What counts the numbers below a bound in any order reads them unsorted.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[X:.*]]: tensor<700x3xi16>
// CHECK-NOT: sort
// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<3xui16>, tensor<3xui16>
// CHECK: stablehlo.constant dense<4> : tensor<i32>
// CHECK: stablehlo.optimization_barrier %[[X]]
// CHECK: :30 = stablehlo.reduce
// CHECK-SAME: across dimensions = [0]
// CHECK: stablehlo.concatenate {{.*}}, dim = 0 : (tensor<1x3xi16>, tensor<1x3xi16>) -> tensor<2x3xi16>
// CHECK: stablehlo.compare LT, %[[X]], %{{.*}}, SIGNED

func.func @main(%x: tensor<700x3xi16>, %k: tensor<i32>) -> (tensor<2x3xi16>, tensor<3xi32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %bound = stablehlo.constant dense<7> : tensor<700x3xi16>
  %s = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%p: tensor<i16>, %q: tensor<i16>):
    %before = stablehlo.compare LT, %p, %q, SIGNED : (tensor<i16>, tensor<i16>) -> tensor<i1>
    stablehlo.return %before : tensor<i1>
  }) : (tensor<700x3xi16>) -> tensor<700x3xi16>
  %two = stablehlo.dynamic_slice %s, %k, %c0, sizes = [2, 3] : (tensor<700x3xi16>, tensor<i32>, tensor<i32>) -> tensor<2x3xi16>
  %less = stablehlo.compare LT, %s, %bound, SIGNED : (tensor<700x3xi16>, tensor<700x3xi16>) -> tensor<700x3xi1>
  %ones = stablehlo.convert %less : (tensor<700x3xi1>) -> tensor<700x3xi32>
  %count = stablehlo.reduce(%ones init: %c0) applies stablehlo.add across dimensions = [0] : (tensor<700x3xi32>, tensor<i32>) -> tensor<3xi32>
  return %two, %count : tensor<2x3xi16>, tensor<3xi32>
}
