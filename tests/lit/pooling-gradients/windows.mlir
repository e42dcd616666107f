// RUN: %exla-opt %s --passes=pooling-gradients | filecheck %s
// RUN: %exla-opt %s --passes=pooling-gradients --target=gpu | filecheck %s --check-prefix=LEFT
// RUN: %exla-opt %s --passes=pooling-gradients --no-reassociate | filecheck %s --check-prefix=ORDERED
// RUN: %exla-opt %s --passes=pooling-gradients --size-threshold=60 --split-size=10 --remarks=passed -o %t 2>&1 | filecheck %s --check-prefix=REMARK

// Windows of two elements that do not overlap, and of three that do. The last choose the larger element, and multiply.

// CHECK: %[[BITS:.*]] = stablehlo.bitcast_convert %{{.*}} : (tensor<f32>) -> tensor<i32>
// CHECK: %[[TRUE:.*]] = stablehlo.compare NE
// CHECK: %[[INDEX:.*]] = stablehlo.convert %[[TRUE]] : (tensor<i1>) -> tensor<i32>
// CHECK: "stablehlo.case"(%[[INDEX]])
// CHECK: %[[EVEN:.*]] = stablehlo.slice %arg0 [0:2, 0:7:2] : (tensor<2x8xf32>) -> tensor<2x4xf32>
// CHECK: %[[ODD:.*]] = stablehlo.slice %arg0 [0:2, 1:8:2] : (tensor<2x8xf32>) -> tensor<2x4xf32>
// CHECK: stablehlo.compare GE, %[[EVEN]], %[[ODD]]
// CHECK: stablehlo.pad %{{.*}} low = [0, 0], high = [0, 1], interior = [0, 1] : (tensor<2x4xf32>, tensor<f32>) -> tensor<2x8xf32>
// CHECK: stablehlo.pad %{{.*}} low = [0, 1], high = [0, 0], interior = [0, 1] : (tensor<2x4xf32>, tensor<f32>) -> tensor<2x8xf32>
// CHECK: stablehlo.add
// CHECK: "stablehlo.case"
// CHECK: stablehlo.slice %arg2 [0:2, 0:5:2]
// CHECK: stablehlo.slice %arg2 [0:2, 1:6:2]
// CHECK: stablehlo.slice %arg2 [0:2, 2:7:2]
// CHECK-COUNT-1: stablehlo.select_and_scatter
// CHECK-NOT: stablehlo.select_and_scatter

// LEFT-NOT: stablehlo.case
// LEFT-COUNT-3: stablehlo.select_and_scatter

// ORDERED-COUNT-1: stablehlo.case
// ORDERED-NOT: stablehlo.case

// REMARK: remark: 2x8xf32 (64B) the gradient of its pooling is computed by comparisons, without a scatter [pooling-gradients, EX015]
// REMARK-NOT: EX015

func.func @main(%x: tensor<2x8xf32>, %dy: tensor<2x4xf32>, %long: tensor<2x7xf32>, %of_long: tensor<2x3xf32>) -> (tensor<2x8xf32>, tensor<2x7xf32>, tensor<2x8xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.select_and_scatter"(%x, %dy, %zero) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %keep = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %keep : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) {window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>} : (tensor<2x8xf32>, tensor<2x4xf32>, tensor<f32>) -> tensor<2x8xf32>
  %1 = "stablehlo.select_and_scatter"(%long, %of_long, %zero) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %keep = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %keep : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) {window_dimensions = array<i64: 1, 3>, window_strides = array<i64: 1, 2>} : (tensor<2x7xf32>, tensor<2x3xf32>, tensor<f32>) -> tensor<2x7xf32>
  %2 = "stablehlo.select_and_scatter"(%x, %dy, %zero) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %keep = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %keep : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %product = stablehlo.multiply %a, %b : tensor<f32>
    stablehlo.return %product : tensor<f32>
  }) {window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>} : (tensor<2x8xf32>, tensor<2x4xf32>, tensor<f32>) -> tensor<2x8xf32>
  return %0, %1, %2 : tensor<2x8xf32>, tensor<2x7xf32>, tensor<2x8xf32>
}
