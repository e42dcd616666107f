// RUN: %exla-opt %s --passes=rce | filecheck %s

// What looks like nothing and is something: equal shapes in another order, a convert that loses bits, another op's notes,
// numbers that a float cuts off at the ends of an integer type, and that integers wrap around.

// CHECK: stablehlo.broadcast_in_dim {{.*}}, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK: stablehlo.transpose {{.*}}, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK: stablehlo.convert {{.*}} -> tensor<4x4xbf16>
// CHECK: stablehlo.convert {{.*}} -> tensor<4x4xf32>
// CHECK: stablehlo.reshape {{.*}} {mhlo.frontend_attributes = {}} : (tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK: %[[TURNED:.*]] = stablehlo.reverse %{{.*}}, dims = [0, 1]
// CHECK: %[[FLOAT:.*]] = stablehlo.convert {{.*}} : (tensor<4x4xui32>) -> tensor<4x4xf64>
// CHECK: %[[CUT_OFF:.*]] = stablehlo.convert %[[FLOAT]] : (tensor<4x4xf64>) -> tensor<4x4xi32>
// CHECK: return {{.*}}, %[[TURNED]], %[[CUT_OFF]] :

func.func @main(%x: tensor<4x4xf32>, %n: tensor<4x4xui32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xi32>) {
  %0 = stablehlo.broadcast_in_dim %x, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = stablehlo.convert %x : (tensor<4x4xf32>) -> tensor<4x4xbf16>
  %3 = stablehlo.convert %2 : (tensor<4x4xbf16>) -> tensor<4x4xf32>
  %4 = stablehlo.reshape %x {mhlo.frontend_attributes = {}} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %5 = stablehlo.reverse %x, dims = [0] : tensor<4x4xf32>
  %6 = stablehlo.reverse %5, dims = [1] : tensor<4x4xf32>
  %7 = stablehlo.convert %n : (tensor<4x4xui32>) -> tensor<4x4xf64>
  %8 = stablehlo.convert %7 : (tensor<4x4xf64>) -> tensor<4x4xi32>
  return %0, %1, %3, %4, %6, %8 : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xi32>
}
